#include "backend_api/requests.hpp"
#include "backends/redis/protocol.hpp"
#include "backends/redis/words.hpp"
#include "tests/kit/redis_commands.hpp"
#include "tests/kit/redis_server.hpp"
#include "tests/kit/shifted_clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

// Schedules that clients bring about seldom: single requests, told to a real server.
namespace sallyport::backends::redis {
namespace {

using namespace std::chrono_literals;

/// What the scripts answer first.
constexpr std::int64_t granted_now = 1;
constexpr std::int64_t waits_now = 2;
constexpr std::int64_t held_now = 3;
constexpr std::int64_t wrong_kind_now = 4;
constexpr std::int64_t ask_again_now = 5;

/// So many tokens are asked for.
constexpr std::uint32_t token_count = 16;

/// A contender: of one client, for one name.
struct contender {
  std::uint64_t number;
  lock_kind kind;
  lock_mode mode = lock_mode::exclusive;
  bool may_wait = true;
};

reply reply_of(const kit::redis_reply& said) {
  reply out;
  if (said.is == kit::redis_reply::kind::integer) out.what = reply::kind::integer;
  if (said.is == kit::redis_reply::kind::text) out.what = reply::kind::text;
  if (said.is == kit::redis_reply::kind::array) out.what = reply::kind::array;
  out.integer = said.integer;
  out.text = said.text;
  for (const auto& item : said.items) out.elements.push_back(reply_of(item));
  return out;
}

class Scripts : public testing::Test {
 protected:
  kit::redis_reply call(const wire_command& command) {
    kit::redis_probe::words words = arguments_of(command);
    words.insert(words.begin(), {"EVAL", std::string(command.script->text)});
    return probe_.expect(words);
  }
  /// The first word of the answer to an acquire that may wait.
  std::int64_t ask(const contender& who) { return acquire(who).items.at(0).integer; }
  kit::redis_reply acquire(const contender& who) { return acquire(who, speech_); }
  kit::redis_reply acquire(const contender& who, const protocol& client) {
    const bool known = !asked_.insert(who.number).second;
    return call(client.acquire(question(who), known));
  }
  [[nodiscard]] backend_api::acquire_request question(const contender& who) const {
    return {.name = name_,
            .kind = who.kind,
            .mode = who.mode,
            .holder = {who.number, who.number},
            .lease_length = 60s,
            .claim_window = 3s,
            .ticket_length = ticket,
            .may_wait = who.may_wait,
            .permits = 1,
            .token_count = token_count,
            .local_waiters = 0,
            .value = {},
            .answer_by = {}};
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
  kit::redis_reply leave(const contender& who, bool withdraw) {
    return call(leaving(who, withdraw));
  }
  [[nodiscard]] wire_command leaving(const contender& who, bool withdraw) const {
    return speech_.leave({name_, who.kind, who.mode, {who.number, who.number}, {}}, withdraw);
  }
  /// What the end of its time does to a lock whose holder is gone.
  void lapse() { ASSERT_EQ(probe_.expect({"DEL", "door"}).integer, 1); }
  /// Whoever waits is heard from now on.
  void listen() { ears_.expect({"SUBSCRIBE", speech_.channel_for(name_)}); }

  static constexpr std::chrono::milliseconds ticket = 60s;
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

// ---- long queues -----------------------------------------------------------------------------------

/// What one script does at most, and what it takes to come past so many.
constexpr std::uint64_t most_served = 128;
constexpr std::uint64_t many = 300;

class LongQueue : public Scripts {
 protected:
  /// Waiters of a client that is gone, numbered from `first` on.
  void dead_waiters(std::uint64_t first, std::uint64_t count, lock_kind kind,
                    lock_mode mode = lock_mode::exclusive) {
    for (std::uint64_t i = first; i < first + count; ++i) {
      std::int64_t said = ask_again_now;
      while (said == ask_again_now)
        said = acquire({i, kind, mode}, gone_client_).items.at(0).integer;
      ASSERT_EQ(said, waits_now);
    }
  }
  /// As `call`, and no waiter more is looked at than a script may.
  kit::redis_reply bounded_call(const wire_command& command) {
    const auto looked_at = [&] {
      return kit::calls_of(probe_, "hget") + kit::calls_of(probe_, "publish");
    };
    // Of each waiter its ticket is read and it is told; of the lock itself some fields are read.
    constexpr std::uint64_t most_calls = 6 * most_served + 20;
    const auto before = looked_at();
    const auto published = kit::calls_of(probe_, "publish");
    auto said = call(command);
    EXPECT_LE(looked_at() - before, most_calls);
    // Beside the waiters the old holder is told, and those who watch an election.
    EXPECT_LE(kit::calls_of(probe_, "publish") - published, most_served + 2);
    return said;
  }
  /// Calls, and goes on until nothing is left to be served; says how many calls that took.
  int serve_all(wire_command command) {
    for (int calls = 1; calls < 100; ++calls) {
      const auto said = reply_of(bounded_call(command));
      auto rest = rest_to_serve(command, said);
      if (!rest) return calls;
      command = std::move(*rest);
    }
    return 100;
  }
  /// Asks until something is decided; says how many calls that took, and what was decided.
  std::pair<int, std::int64_t> ask_until_decided(const contender& who) {
    for (int calls = 1; calls < 100; ++calls) {
      asked_.insert(who.number);
      const auto said = bounded_call(speech_.acquire(question(who), true)).items.at(0).integer;
      if (said != ask_again_now) return {calls, said};
    }
    return {100, ask_again_now};
  }
  /// Who was told of its grant, in the order of the messages.
  std::vector<std::uint64_t> granted_in_order() {
    std::vector<std::uint64_t> all;
    while (ears_.readable(50ms)) {
      if (const auto told = parse_notice(ears_.receive().items.at(2).text)) {
        all.push_back(told->holder.low);
      }
    }
    return all;
  }
  static std::vector<std::uint64_t> numbers(std::uint64_t first, std::uint64_t count) {
    std::vector<std::uint64_t> all(count);
    std::iota(all.begin(), all.end(), first);
    return all;
  }
  std::int64_t queue_length() { return probe_.expect({"ZCARD", "door\1queue"}).integer; }

  const protocol gone_client_{{.prefix = "", .cluster = false, .client = "00000000000000bb"}};
};

TEST_F(LongQueue, OfDeadWaitersIsPassedBySeveralCallsOfARelease) {
  listen();
  const contender holder{1, lock_kind::mutex};
  const contender living{2, lock_kind::mutex};
  ASSERT_EQ(ask(holder), granted_now);
  dead_waiters(1000, many, lock_kind::mutex);
  ASSERT_EQ(ask(living), waits_now);

  EXPECT_EQ(serve_all(leaving(holder, false)), 3);

  EXPECT_EQ(granted_in_order(), numbers(living.number, 1));
  EXPECT_EQ(ask(living), granted_now);
}

TEST_F(LongQueue, IsServedOnByAHeartbeatWhenWhoLeftHasDied) {
  listen();
  const contender holder{1, lock_kind::mutex};
  const contender living{2, lock_kind::mutex};
  ASSERT_EQ(ask(holder), granted_now);
  dead_waiters(1000, many, lock_kind::mutex);
  ASSERT_EQ(ask(living), waits_now);
  const auto left = reply_of(bounded_call(leaving(holder, false)));
  ASSERT_TRUE(rest_to_serve(leaving(holder, false), left));
  EXPECT_EQ(leave_answer_of(left).value(), backend_api::leave_answer::left);

  const std::array heartbeat{question(living)};
  EXPECT_EQ(call(speech_.beat(heartbeat)).items.at(0).integer, 0) << "it asks in full";
  EXPECT_EQ(ask_until_decided(living), (std::pair<int, std::int64_t>(2, granted_now)));
}

TEST_F(LongQueue, LetsNoNewcomerPastThoseWhoLive) {
  listen();
  const contender holder{1, lock_kind::mutex};
  const contender living{2, lock_kind::mutex};
  const contender newcomer{3, lock_kind::mutex, lock_mode::exclusive, false};
  ASSERT_EQ(ask(holder), granted_now);
  dead_waiters(1000, many, lock_kind::mutex);
  ASSERT_EQ(ask(living), waits_now);
  bounded_call(leaving(holder, false));

  EXPECT_EQ(ask_until_decided(newcomer), (std::pair<int, std::int64_t>(2, held_now)));

  EXPECT_EQ(granted_in_order(), numbers(living.number, 1));
}

struct kind_and_mode {
  lock_kind kind;
  lock_mode mode;
};

class LongQueueOfAKind : public LongQueue, public testing::WithParamInterface<kind_and_mode> {};

TEST_P(LongQueueOfAKind, OfDeadWaitersDoesNotMakeAFreeLockHeld) {
  const auto [kind, mode] = GetParam();
  ASSERT_EQ(ask({1, kind, mode == lock_mode::shared ? lock_mode::exclusive : mode}), granted_now);
  dead_waiters(1000, many, kind, mode);
  lapse();

  EXPECT_EQ(ask_until_decided({2, kind, mode, false}),
            (std::pair<int, std::int64_t>(3, granted_now)));
}

TEST_P(LongQueueOfAKind, IsServedToItsEndAfterALockWasBroken) {
  const auto [kind, mode] = GetParam();
  listen();
  const contender holder{1, kind, lock_mode::exclusive};
  const auto grant = acquire(holder);
  dead_waiters(1000, many, kind, mode);
  const contender living{2, kind, mode};
  ASSERT_EQ(ask(living), waits_now);

  const auto token = fencing_token(static_cast<std::uint64_t>(grant.items.at(1).integer));
  EXPECT_EQ(serve_all(speech_.break_lock(name_, token, backend_api::break_mode::at_once)), 3);

  EXPECT_EQ(ask(living), granted_now);
}

INSTANTIATE_TEST_SUITE_P(All, LongQueueOfAKind,
                         testing::Values(kind_and_mode{lock_kind::mutex, lock_mode::exclusive},
                                         kind_and_mode{lock_kind::election, lock_mode::exclusive},
                                         kind_and_mode{lock_kind::semaphore, lock_mode::exclusive},
                                         kind_and_mode{lock_kind::shared_mutex, lock_mode::shared}),
                         [](const auto& shown) {
                           return std::string(to_string(shown.param.kind));
                         });

class LongQueueOfReaders : public LongQueue {
 protected:
  void SetUp() override {
    listen();
    ASSERT_EQ(ask(writer), granted_now);
    for (const auto each : numbers(first_reader, many)) {
      ASSERT_EQ(ask({each, lock_kind::shared_mutex, lock_mode::shared}), waits_now);
    }
    ASSERT_EQ(ask(next_writer), waits_now);
  }
  void expect_all_inside() {
    EXPECT_EQ(granted_in_order(), numbers(first_reader, many));
    EXPECT_EQ(queue_length(), 1) << "the next writer";
    EXPECT_EQ(ask(next_writer), waits_now);
  }

  static constexpr std::uint64_t first_reader = 1000;
  const contender writer{1, lock_kind::shared_mutex};
  const contender next_writer{5000, lock_kind::shared_mutex};
};

TEST_F(LongQueueOfReaders, EntersInOrderInSeveralCallsWhenAWriterLeaves) {
  EXPECT_EQ(serve_all(leaving(writer, false)), 3);
  expect_all_inside();
}

TEST_F(LongQueueOfReaders, EntersInOrderInSeveralCallsWhenAWriterBecomesAReader) {
  const backend_api::renew_request request{.name = name_,
                                           .kind = lock_kind::shared_mutex,
                                           .mode = lock_mode::exclusive,
                                           .holder = {writer.number, writer.number},
                                           .lease_length = 60s,
                                           .answer_by = {}};
  EXPECT_EQ(serve_all(speech_.downgrade(request)), 3);
  expect_all_inside();
}

TEST_F(LongQueueOfReaders, EntersByItsOwnQuestionsWhenWhoLeftHasDied) {
  bounded_call(leaving(writer, false));
  ASSERT_EQ(granted_in_order(), numbers(first_reader, most_served));

  const contender last{first_reader + many - 1, lock_kind::shared_mutex, lock_mode::shared};
  EXPECT_EQ(ask_until_decided(last), (std::pair<int, std::int64_t>(2, granted_now)));

  // The last one is not told by a message: it is here.
  EXPECT_EQ(granted_in_order(), numbers(first_reader + most_served, many - most_served - 1));
  EXPECT_EQ(queue_length(), 1);
}

TEST_F(LongQueueOfReaders, IsAskedForInFullByHeartbeatsThatTravelTogetherAsSoonAsItMayEnter) {
  const contender last{first_reader + many - 1, lock_kind::shared_mutex, lock_mode::shared};
  const std::array heartbeat{question(last)};
  EXPECT_EQ(call(speech_.beat(heartbeat)).items.at(0).items.at(0).integer, waits_now);

  bounded_call(leaving(writer, false));

  EXPECT_EQ(call(speech_.beat(heartbeat)).items.at(0).integer, 0);
}

TEST_F(LongQueueOfReaders, LetsANewReaderWaitBehindTheNextWriter) {
  bounded_call(leaving(writer, false));

  const contender newcomer{6000, lock_kind::shared_mutex, lock_mode::shared, false};
  EXPECT_EQ(ask_until_decided(newcomer).second, held_now);

  expect_all_inside();
}

// ---- places far back -------------------------------------------------------------------------------

class PlacesFarBack : public LongQueue, public testing::WithParamInterface<lock_kind> {
 protected:
  void SetUp() override {
    clock_.freeze();
    ASSERT_EQ(ask({1, GetParam()}), granted_now);
  }
  struct told_of_place {
    std::int64_t ahead;
    std::int64_t stretch;
    friend bool operator==(const told_of_place&, const told_of_place&) = default;
    friend std::ostream& operator<<(std::ostream& out, const told_of_place& shown) {
      return out << shown.ahead << " ahead, " << shown.stretch << " times";
    }
  };
  /// What the heartbeat of the waiter at this place is told.
  told_of_place heartbeat(std::uint64_t place, bool with_others = false) {
    const contender who{1000 + place, GetParam()};
    kit::redis_reply said;
    if (with_others) {
      const std::array alone{question(who)};
      said = call(speech_.beat(alone)).items.at(0);
    } else {
      said = acquire(who);
    }
    const auto answer = acquire_answer_of(reply_of(said), 0).value();
    const auto& waits = std::get<backend_api::waiting>(answer);
    return {waits.ahead, waits.ticket_stretch};
  }
  /// How much of a ticket's life is left.
  std::chrono::milliseconds left_of(std::uint64_t place) {
    const auto id = hex_of(backend_api::holder_id{1000 + place, 1000 + place});
    const auto ticket_text = probe_.expect({"HGET", "door\1waiters", std::string(view(id))}).text;
    const auto lapses = std::stoll(ticket_text.substr(ticket_text.find(' ') + 1));
    const auto time = probe_.expect({"TIME"}).texts();
    return std::chrono::milliseconds{lapses - std::stoll(time[0]) * 1000 -
                                     std::stoll(time[1]) / 1000};
  }
  std::chrono::milliseconds keys_live() {
    std::int64_t least = INT64_MAX;
    for (const char* each : {"door\1queue", "door\1waiters"}) {
      least = std::min(least, probe_.expect({"PTTL", each}).integer);
    }
    return std::chrono::milliseconds{least};
  }
};

TEST_P(PlacesFarBack, LetTicketsLiveLongerTheMoreStandBeforeThem) {
  dead_waiters(1000, 4200, GetParam());
  using told = told_of_place;
  EXPECT_EQ(heartbeat(0), (told{0, 1}));
  EXPECT_EQ(heartbeat(255), (told{255, 1}));
  EXPECT_EQ(heartbeat(256), (told{256, 2}));
  EXPECT_EQ(heartbeat(4095), (told{4095, 31}));
  EXPECT_EQ(heartbeat(4199), (told{4199, 32}));
  EXPECT_EQ(left_of(255), ticket);
  EXPECT_EQ(left_of(256), 2 * ticket);
  EXPECT_EQ(left_of(4199), 32 * ticket);
  EXPECT_GE(keys_live(), 32 * ticket);
  EXPECT_EQ(heartbeat(383, true), (told{383, 2}));
  EXPECT_EQ(heartbeat(384, true), (told{384, 3}));
  EXPECT_EQ(left_of(384), 3 * ticket);
  // Who comes last lets nobody's key end sooner, and its first question counts once.
  dead_waiters(5200, 1, GetParam());
  EXPECT_EQ(left_of(4200), ticket);
  EXPECT_GE(keys_live(), 32 * ticket);
}

TEST_P(PlacesFarBack, DoNotCountForOneThatNobodyHears) {
  dead_waiters(1000, 300, GetParam());
  const auto id = hex_of(backend_api::holder_id{1299, 1299});
  probe_.expect({"ZADD", "door\1queue", "XX", "300.5", std::string(view(id))});

  EXPECT_EQ(heartbeat(299), (told_of_place{299, 1}));
}

TEST_P(PlacesFarBack, AreSweptOfTheDeadByNewcomers) {
  dead_waiters(1000, 700, GetParam());
  for (std::uint64_t place = 300; place < 700; ++place) heartbeat(place);
  // The holder stays; the first 300 lapse, the keys do not.
  clock_.step(ticket / 2);
  ASSERT_EQ(renew({1, GetParam()}).items.at(0).integer, 1);
  clock_.step(ticket / 2 + 1s);
  ASSERT_GT(keys_live(), 10s);

  dead_waiters(3000, 1000, GetParam());

  EXPECT_LT(queue_length(), 700 + 1000 - 300 + 60) << "most of the dead are gone";
}

TEST_P(PlacesFarBack, AreKeptByThoseSetAsideWhenANewQueueBegins) {
  dead_waiters(1000, 300, GetParam());
  EXPECT_EQ(heartbeat(299).stretch, 2);
  // Nobody listens: all are set aside.
  serve_all(leaving({1, GetParam()}, false));
  ASSERT_EQ(queue_length(), 0);
  ASSERT_EQ(ask({2, GetParam()}), granted_now);
  ASSERT_EQ(ask({3, GetParam()}), waits_now);

  EXPECT_GE(keys_live(), 2 * ticket);
  EXPECT_GE(probe_.expect({"PTTL", "door\1absent"}).integer,
            std::chrono::milliseconds(2 * ticket).count());
}

INSTANTIATE_TEST_SUITE_P(All, PlacesFarBack,
                         testing::Values(lock_kind::mutex, lock_kind::semaphore),
                         [](const auto& shown) { return std::string(to_string(shown.param)); });

TEST_F(LongQueue, OfASemaphoreIsAskedForInFullAsSoonAsAPermitIsFreeOrLapses) {
  const contender holder{1, lock_kind::semaphore};
  const contender waits{2, lock_kind::semaphore};
  const std::array heartbeat{question(waits)};
  ASSERT_EQ(ask(holder), granted_now);
  ASSERT_EQ(ask(waits), waits_now);
  // As acquire would: after how long, and that it is the first of one permit.
  const auto together = call(speech_.beat(heartbeat)).items.at(0);
  const auto alone = acquire(waits);
  ASSERT_EQ(together.items.size(), alone.items.size());
  for (const std::size_t i : std::array<std::size_t, 7>{0, 2, 3, 4, 5, 6, 7}) {
    EXPECT_EQ(together.items[i].integer, alone.items[i].integer) << i;
  }
  EXPECT_NEAR(static_cast<double>(together.items[1].integer), 60'000, 5'000);

  clock_.step(60s);

  EXPECT_EQ(call(speech_.beat(heartbeat)).items.at(0).integer, 0);
}

TEST_F(LongQueue, IsShownInPages) {
  ASSERT_EQ(ask({1, lock_kind::mutex}), granted_now);
  dead_waiters(1000, many, lock_kind::mutex);
  const std::vector<std::string> names{"nobody", "door"};
  const auto first = call(speech_.who(names, false));
  ASSERT_EQ(first.items.size(), 2U);
  EXPECT_TRUE(first.items[0].is_nil());

  lock_view seen;
  ASSERT_TRUE(add_page(seen, reply_of(first.items[1])));
  EXPECT_EQ(seen.info.waiters.size(), most_served);
  int pages = 1;
  for (; !seen.next_page.empty() && pages < 10; ++pages) {
    const auto next = call(speech_.who(std::span(names).subspan(1), false, seen.next_page));
    ASSERT_TRUE(add_page(seen, reply_of(next.items.at(0))));
  }

  EXPECT_EQ(pages, 3);
  EXPECT_EQ(seen.info.waiters.size(), many);
  EXPECT_EQ(seen.info.holders.size(), 1U);
}

}  // namespace
}  // namespace sallyport::backends::redis
