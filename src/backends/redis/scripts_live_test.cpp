#include "backend_api/requests.hpp"
#include "backends/redis/protocol.hpp"
#include "tests/kit/redis_server.hpp"
#include "tests/kit/shifted_clock.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <ostream>
#include <set>
#include <string>
#include <string_view>

// Schedules that clients bring about seldom: single requests, told to a real server.
namespace sallyport::backends::redis {
namespace {

using namespace std::chrono_literals;

/// What the scripts answer first.
constexpr std::int64_t granted_now = 1;
constexpr std::int64_t waits_now = 2;
constexpr std::int64_t wrong_kind_now = 4;

/// So many tokens are asked for.
constexpr std::uint32_t token_count = 16;

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
  std::int64_t ask(const contender& who) { return acquire(who).items.at(0).integer; }
  kit::redis_reply acquire(const contender& who) {
    const bool known = !asked_.insert(who.number).second;
    return call(speech_.acquire({.name = name_,
                                 .kind = who.kind,
                                 .mode = who.mode,
                                 .holder = {who.number, who.number},
                                 .lease_length = 60s,
                                 .claim_window = 3s,
                                 .ticket_length = 60s,
                                 .may_wait = true,
                                 .permits = 1,
                                 .token_count = token_count,
                                 .local_waiters = 0,
                                 .value = {},
                                 .answer_by = {}},
                                known));
  }
  kit::redis_reply renew(const contender& who) {
    return call(speech_.renew({.name = name_,
                               .kind = who.kind,
                               .mode = who.mode,
                               .holder = {who.number, who.number},
                               .lease_length = 60s,
                               .token_count = token_count,
                               .local_waiters = 0,
                               .answer_by = {}}));
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
  kit::shifted_clock clock_;
  kit::redis_server server_{{.clock = &clock_}};
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

// ---- tokens ----------------------------------------------------------------------------------------

struct block {
  std::int64_t first;
  std::int64_t last;

  friend bool operator==(const block&, const block&) = default;
  friend std::ostream& operator<<(std::ostream& out, const block& shown) {
    return out << shown.first << " to " << shown.last;
  }
};

/// One of the steps that draw tokens.
enum class step : std::uint8_t {
  first_question,
  later_question,
  hand_over,
  hand_over_by_a_late_leave,
  renewal
};

struct drawing {
  lock_kind kind;
  step how;
  std::string_view name;
};

class ScriptsThatDraw : public Scripts, public testing::WithParamInterface<drawing> {
 protected:
  void SetUp() override {
    now_ = std::chrono::floor<std::chrono::milliseconds>(clock_.freeze().time_since_epoch());
    listen();
  }
  /// With the counter at `counter` (0: it is lost), the tokens that the step draws.
  block drawn_at(std::int64_t counter) {
    const contender first{1, GetParam().kind};
    const contender second{2, GetParam().kind};
    asked_.clear();
    probe_.expect({"FLUSHALL"});
    if (GetParam().how == step::later_question) asked_.insert(first.number);
    if (GetParam().how >= step::hand_over) acquire(first);
    if (GetParam().how == step::hand_over || GetParam().how == step::hand_over_by_a_late_leave) {
      acquire(second);
    }
    if (GetParam().how == step::hand_over_by_a_late_leave) lapse();
    probe_.expect({"DEL", counter_key});
    if (counter != 0) probe_.expect({"SET", counter_key, std::to_string(counter)});
    const block got = step_of(first);
    EXPECT_EQ(probe_.expect({"GET", counter_key}).text, std::to_string(got.last));
    return got;
  }
  /// Blocks end here: a millisecond before the clock.
  [[nodiscard]] std::int64_t limit() const { return (now_.count() - 1) * 1024; }

 private:
  static constexpr const char* counter_key = "\1token";

  block step_of(const contender& who) {
    switch (GetParam().how) {
      case step::first_question:
      case step::later_question:
        return block_in(acquire(who));
      case step::hand_over:
      case step::hand_over_by_a_late_leave: {
        leave(who, GetParam().how == step::hand_over_by_a_late_leave);
        const auto told = parse_notice(ears_.receive().items.at(2).text);
        if (!told || !told->grant) return {};
        return {static_cast<std::int64_t>(told->grant->tokens.first.value()),
                static_cast<std::int64_t>(told->grant->tokens.last.value())};
      }
      case step::renewal:
        return block_in(renew(who));
    }
    return {};
  }
  static block block_in(const kit::redis_reply& said) {
    EXPECT_EQ(said.items.at(0).integer, granted_now);
    return {said.items.at(1).integer, said.items.at(2).integer};
  }

  std::chrono::milliseconds now_{};
};

TEST_P(ScriptsThatDraw, GiveBlocksUpToTheClockAndSingleTokensBeyond) {
  EXPECT_EQ(drawn_at(limit() - 100), (block{limit() - 99, limit() - 84}));
  EXPECT_EQ(drawn_at(limit() - 5), (block{limit() - 4, limit()}));
  EXPECT_EQ(drawn_at(limit() - 1), (block{limit(), limit()}));
  EXPECT_EQ(drawn_at(limit()), (block{limit() + 1, limit() + 1}));
  EXPECT_EQ(drawn_at(limit() + 5000), (block{limit() + 5001, limit() + 5001}));
}

TEST_P(ScriptsThatDraw, BeginAboveAllBlocksWhenTheCounterWasLost) {
  EXPECT_EQ(drawn_at(0), (block{limit() + 1024 + 1, limit() + 1024 + 1}));
}

INSTANTIATE_TEST_SUITE_P(
    All, ScriptsThatDraw,
    testing::Values(drawing{lock_kind::mutex, step::first_question, "mutex_first_question"},
                    drawing{lock_kind::mutex, step::later_question, "mutex_later_question"},
                    drawing{lock_kind::mutex, step::hand_over, "mutex_hand_over"},
                    drawing{lock_kind::mutex, step::hand_over_by_a_late_leave, "mutex_late_leave"},
                    drawing{lock_kind::mutex, step::renewal, "mutex_renewal"},
                    drawing{lock_kind::shared_mutex, step::first_question,
                            "shared_mutex_first_question"},
                    drawing{lock_kind::shared_mutex, step::hand_over, "shared_mutex_hand_over"},
                    drawing{lock_kind::shared_mutex, step::renewal, "shared_mutex_renewal"}),
    [](const auto& shown) { return std::string(shown.param.name); });

}  // namespace
}  // namespace sallyport::backends::redis
