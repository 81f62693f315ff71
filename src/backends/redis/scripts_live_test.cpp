#include "backend_api/requests.hpp"
#include "backends/redis/protocol.hpp"
#include "tests/kit/redis_server.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

// Schedules that clients bring about seldom: single requests, told to a real server.
namespace sallyport::backends::redis {
namespace {

using namespace std::chrono_literals;

/// What the scripts answer first.
constexpr std::int64_t granted_now = 1;
constexpr std::int64_t waits_now = 2;
constexpr std::int64_t wrong_kind_now = 4;

/// A contender: of one client, for one name.
struct contender {
  std::uint64_t number;
  lock_kind kind;
  lock_mode mode = lock_mode::exclusive;
};

class Scripts : public testing::Test {
 protected:
  kit::redis_reply call(const wire_command& command) {
    kit::redis_probe::words words = arguments_of(command);
    words.insert(words.begin(), {"EVAL", std::string(command.script->text)});
    return probe_.expect(words);
  }
  /// The first word of the answer to an acquire that may wait.
  std::int64_t ask(const contender& who) {
    const bool known = !asked_.insert(who.number).second;
    const auto said = call(speech_.acquire({.name = name_,
                                            .kind = who.kind,
                                            .mode = who.mode,
                                            .holder = {who.number, who.number},
                                            .lease_length = 60s,
                                            .claim_window = 3s,
                                            .ticket_length = 60s,
                                            .may_wait = true,
                                            .permits = 1,
                                            .token_count = 1,
                                            .local_waiters = 0,
                                            .value = {},
                                            .answer_by = {}},
                                           known));
    return said.items.at(0).integer;
  }
  void leave(const contender& who, bool withdraw) {
    call(speech_.leave({name_, who.kind, who.mode, {who.number, who.number}, {}}, withdraw));
  }
  /// What the end of its time does to a lock whose holder is gone.
  void lapse() { ASSERT_EQ(probe_.expect({"DEL", "door"}).integer, 1); }
  /// Whoever waits is heard from now on.
  void listen() { ears_.expect({"SUBSCRIBE", speech_.channel_for(name_)}); }

  const lock_name name_{"door"};
  const protocol speech_{{.prefix = "", .cluster = false, .client = "00000000000000aa"}};
  std::set<std::uint64_t> asked_;
  kit::redis_server server_;
  kit::redis_probe probe_{server_.address()};
  kit::redis_probe ears_{server_.address()};
};

struct kinds {
  contender holds;
  contender waits;
  contender left_long_ago;
};

class ScriptsOfTwoKinds : public Scripts, public testing::WithParamInterface<kinds> {};

TEST_P(ScriptsOfTwoKinds, ALateWithdrawalDoesNotServeTheQueueOfTheOtherKind) {
  const auto& [holds, waits, left_long_ago] = GetParam();
  listen();
  ASSERT_EQ(ask(holds), granted_now);
  ASSERT_EQ(ask(waits), waits_now);
  lapse();

  leave(left_long_ago, true);

  EXPECT_EQ(probe_.expect({"EXISTS", "door"}).integer, 0) << "somebody was let in";
  EXPECT_EQ(ask(waits), granted_now);
}

INSTANTIATE_TEST_SUITE_P(
    All, ScriptsOfTwoKinds,
    testing::Values(
        kinds{{1, lock_kind::shared_mutex},
              {2, lock_kind::shared_mutex, lock_mode::shared},
              {3, lock_kind::mutex}},
        kinds{{1, lock_kind::semaphore}, {2, lock_kind::semaphore}, {3, lock_kind::election}},
        kinds{{1, lock_kind::election}, {2, lock_kind::election}, {3, lock_kind::mutex}},
        kinds{{1, lock_kind::mutex},
              {2, lock_kind::mutex},
              {3, lock_kind::shared_mutex, lock_mode::shared}},
        kinds{
            {1, lock_kind::shared_mutex}, {2, lock_kind::shared_mutex}, {3, lock_kind::semaphore}}),
    [](const auto& shown) {
      return std::string(to_string(shown.param.waits.kind)) + "_after_" +
             std::string(to_string(shown.param.left_long_ago.kind));
    });

TEST_F(Scripts, ANewQueueHasTheKindOfItsFirstWaiter) {
  const contender reader{2, lock_kind::shared_mutex, lock_mode::shared};
  {
    const contender writer{1, lock_kind::shared_mutex};
    ASSERT_EQ(ask(writer), granted_now);
    ASSERT_EQ(ask(reader), waits_now);
    leave(writer, false);  // nobody listens for the reader: it is set aside
  }
  const contender next{4, lock_kind::mutex};
  ASSERT_EQ(ask({3, lock_kind::mutex}), granted_now);
  ASSERT_EQ(ask(next), waits_now);
  lapse();

  EXPECT_EQ(ask(next), granted_now);
  EXPECT_EQ(ask(reader), wrong_kind_now);
}

}  // namespace
}  // namespace sallyport::backends::redis
