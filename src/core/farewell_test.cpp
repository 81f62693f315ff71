#include "core/farewell.hpp"

#include "base/random.hpp"
#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <ostream>

namespace sallyport::core {

bool operator==(const farewell_actions& one, const farewell_actions& other) {
  return one.send_release == other.send_release && one.send_withdraw == other.send_withdraw &&
         one.tell == other.tell && one.over == other.over;
}

std::ostream& operator<<(std::ostream& out, const farewell_actions& actions) {
  out << (actions.send_release ? "[release]" : "") << (actions.send_withdraw ? "[withdraw]" : "");
  if (actions.tell) out << "[tell " << static_cast<int>(*actions.tell) << "]";
  out << (actions.over ? "[over]" : "");
  return out;
}

namespace {

using namespace std::chrono_literals;
using backend_api::leave_answer;
using answer = base::result<leave_answer>;

constexpr time_point at(duration since_start) { return time_point{1'000h} + since_start; }

const farewell_actions nothing{};
const farewell_actions release{.send_release = true};
const farewell_actions withdraw{.send_withdraw = true};
const farewell_actions over{.over = true};
const farewell_actions tell_unknown{.tell = release_outcome::unknown};

const timing usual_times = [] {
  timing times;
  times.lease_length = 40s;
  return times;
}();

answer failure(errc code) { return base::fail(code); }

/// Nothing is late, and the store forgets by itself after 40 s.
farewell releasing() { return {usual_times, farewell::kind::release, time_point::min(), at(40s)}; }

farewell withdrawing(time_point late_until = time_point::min()) {
  return {usual_times, farewell::kind::withdraw, late_until, at(40s)};
}

// ---- release ----

TEST(Farewell, ReleasesAtOnce) {
  farewell machine = releasing();

  EXPECT_EQ(machine.start(at(0s)), release);
  EXPECT_EQ(machine.wake_at(), time_point::max());
}

TEST(Farewell, TellsAReleaseAndIsOver) {
  farewell machine = releasing();
  static_cast<void>(machine.start(at(0s)));

  EXPECT_EQ(machine.on_answered(leave_answer::left, at(1s), 0.0),
            (farewell_actions{.tell = release_outcome::released, .over = true}));
}

TEST(Farewell, TellsThatThereWasNothingToRelease) {
  farewell machine = releasing();
  static_cast<void>(machine.start(at(0s)));

  EXPECT_EQ(machine.on_answered(leave_answer::not_there, at(1s), 0.0),
            (farewell_actions{.tell = release_outcome::already_lost}));
}

TEST(Farewell, WithdrawsAtOnceWhenThereWasNothingToReleaseButPerhapsATicket) {
  farewell machine = releasing();
  static_cast<void>(machine.start(at(0s)));
  static_cast<void>(machine.on_answered(leave_answer::not_there, at(1s), 0.0));

  EXPECT_EQ(machine.wake_at(), at(1s));
  EXPECT_EQ(machine.on_timer(at(1s)), withdraw);
  EXPECT_EQ(machine.on_answered(leave_answer::not_there, at(2s), 0.0), over);
}

TEST(Farewell, TellsUnknownAtTheFirstFailureAndGoesOn) {
  farewell machine = releasing();
  static_cast<void>(machine.start(at(0s)));

  EXPECT_EQ(machine.on_answered(failure(errc::unavailable), at(1s), 0.0), tell_unknown);

  EXPECT_EQ(machine.wake_at(), at(1'010ms));
}

TEST(Farewell, SaysItsReleaseAgainWhenNothingHappened) {
  farewell machine = releasing();
  static_cast<void>(machine.start(at(0s)));
  static_cast<void>(machine.on_answered(failure(errc::unavailable), at(1s), 0.0));

  EXPECT_EQ(machine.on_timer(machine.wake_at()), release);
}

TEST(Farewell, RepeatsAReleaseThatMayHaveHappenedAsAWithdrawal) {
  farewell machine = releasing();
  static_cast<void>(machine.start(at(0s)));
  static_cast<void>(machine.on_answered(failure(errc::outcome_unknown), at(1s), 0.0));

  EXPECT_EQ(machine.on_timer(machine.wake_at()), withdraw);
}

TEST(Farewell, TellsOnlyOnce) {
  farewell machine = releasing();
  static_cast<void>(machine.start(at(0s)));
  ASSERT_EQ(machine.on_answered(failure(errc::unavailable), at(1s), 0.0), tell_unknown);
  ASSERT_EQ(machine.on_timer(at(2s)), release);

  EXPECT_EQ(machine.on_answered(leave_answer::left, at(2s), 0.0), over);
}

// ---- withdraw ----

TEST(Farewell, WithdrawsAndTellsNobody) {
  farewell machine = withdrawing();

  EXPECT_EQ(machine.start(at(0s)), withdraw);
  EXPECT_EQ(machine.on_answered(leave_answer::left, at(1s), 0.0), over);
}

TEST(Farewell, TellsNobodyOfAFailedWithdrawal) {
  farewell machine = withdrawing();
  static_cast<void>(machine.start(at(0s)));

  EXPECT_EQ(machine.on_answered(failure(errc::outcome_unknown), at(1s), 0.0), nothing);
}

// ---- retries ----

TEST(Farewell, WaitsLongerAfterEveryFailureUpToASecond) {
  farewell machine = withdrawing();
  static_cast<void>(machine.start(at(0s)));
  time_point now = at(1s);
  duration last{};

  for (int failures = 0; failures < 12; ++failures) {
    ASSERT_EQ(machine.on_answered(failure(errc::unavailable), now, 0.999), nothing);
    const duration wait = machine.wake_at() - now;
    ASSERT_GE(wait, last);
    ASSERT_LE(wait, 1s);
    last = wait;
    now = machine.wake_at();
    ASSERT_EQ(machine.on_timer(now), withdraw);
  }

  EXPECT_GT(last, 990ms);
}

TEST(Farewell, DoesNotSendBeforeItsTime) {
  farewell machine = withdrawing();
  static_cast<void>(machine.start(at(0s)));
  static_cast<void>(machine.on_answered(failure(errc::unavailable), at(1s), 0.0));

  EXPECT_EQ(machine.on_timer(machine.wake_at() - 1ns), nothing);
}

TEST(Farewell, KeepsTryingUntilTheStoreHasForgottenByItself) {
  farewell machine = releasing();
  static_cast<void>(machine.start(at(0s)));

  EXPECT_FALSE(machine.on_answered(failure(errc::unavailable), at(40s) - 1ns, 0.0).over);
  ASSERT_EQ(machine.on_timer(at(41s)), release);
  EXPECT_EQ(machine.on_answered(failure(errc::unavailable), at(41s), 0.0), over);
}

TEST(Farewell, GivesUpExactlyWhenTheLeaseHasLapsed) {
  farewell machine = withdrawing();
  static_cast<void>(machine.start(at(0s)));

  EXPECT_EQ(machine.on_answered(failure(errc::unavailable), at(40s), 0.0), over);
}

TEST(Farewell, TellsUnknownWhenItGivesUpAtItsFirstAnswer) {
  farewell machine = releasing();
  static_cast<void>(machine.start(at(0s)));

  EXPECT_EQ(machine.on_answered(failure(errc::outcome_unknown), at(40s), 0.0),
            (farewell_actions{.tell = release_outcome::unknown, .over = true}));
}

TEST(Farewell, KeepsTryingUntilWhatALostRequestMayHaveDoneHasLapsedToo) {
  farewell machine = withdrawing(at(50s));
  static_cast<void>(machine.start(at(0s)));

  EXPECT_EQ(machine.on_answered(failure(errc::unavailable), at(90s) - 1ns, 0.0), nothing);
  ASSERT_EQ(machine.on_timer(at(90s)), nothing);
  ASSERT_EQ(machine.on_timer(at(91s)), withdraw);
  EXPECT_EQ(machine.on_answered(failure(errc::unavailable), at(91s), 0.0), over);
}

TEST(Farewell, WaitsForALostTicketToLapseWhereThatLivesLongerThanALease) {
  timing times = usual_times;
  times.ticket_length = 60s;
  farewell machine{times, farewell::kind::withdraw, at(50s), at(40s)};
  static_cast<void>(machine.start(at(0s)));

  EXPECT_EQ(machine.on_answered(failure(errc::unavailable), at(110s) - 1ns, 0.0), nothing);
  ASSERT_EQ(machine.on_timer(at(111s)), withdraw);
  EXPECT_EQ(machine.on_answered(failure(errc::unavailable), at(111s), 0.0), over);
}

TEST(Farewell, IsOverWhenTheClientIsClosed) {
  farewell machine = releasing();
  static_cast<void>(machine.start(at(0s)));

  EXPECT_EQ(machine.on_answered(failure(errc::closed), at(1s), 0.0),
            (farewell_actions{.tell = release_outcome::unknown, .over = true}));
}

TEST(Farewell, SaysNothingTwiceWhileAnAnswerIsAwaited) {
  farewell machine = releasing();
  static_cast<void>(machine.start(at(0s)));

  EXPECT_EQ(machine.on_timer(at(1h)), nothing);
  EXPECT_EQ(machine.on_reconnected(at(1s)), nothing);
  EXPECT_EQ(machine.on_late_request(at(30s), at(1s)), nothing);
  EXPECT_EQ(machine.wake_at(), time_point::max());
}

// ---- reconnects ----

TEST(Farewell, DoesNotWaitForItsRetryWhenTheStoreIsBack) {
  farewell machine = releasing();
  static_cast<void>(machine.start(at(0s)));
  static_cast<void>(machine.on_answered(failure(errc::unavailable), at(1s), 0.0));

  EXPECT_EQ(machine.on_reconnected(at(1'001ms)), release);
}

TEST(Farewell, SendsOnceForAReconnectAndTheRetryThatWasDue) {
  farewell machine = releasing();
  static_cast<void>(machine.start(at(0s)));
  static_cast<void>(machine.on_answered(failure(errc::unavailable), at(1s), 0.0));
  ASSERT_EQ(machine.on_reconnected(at(2s)), release);

  EXPECT_EQ(machine.on_timer(at(2s)), nothing);
}

// ---- late requests ----

TEST(Farewell, WithdrawsAgainAndAgainWhileALostRequestMayComeAndOnceAtTheEnd) {
  farewell machine = withdrawing(at(15s));
  static_cast<void>(machine.start(at(0s)));

  ASSERT_EQ(machine.on_answered(leave_answer::left, at(1s), 0.0), nothing);
  EXPECT_EQ(machine.wake_at(), at(11s));
  ASSERT_EQ(machine.on_timer(at(11s)), withdraw);
  ASSERT_EQ(machine.on_answered(leave_answer::not_there, at(12s), 0.0), nothing);
  EXPECT_EQ(machine.wake_at(), at(15s));
  ASSERT_EQ(machine.on_timer(at(15s)), withdraw);
  EXPECT_EQ(machine.on_answered(leave_answer::not_there, at(15s), 0.0), over);
}

TEST(Farewell, IsNotOverAMomentBeforeTheLostRequestIsSurelyDead) {
  farewell machine = withdrawing(at(15s));
  static_cast<void>(machine.start(at(0s)));

  EXPECT_EQ(machine.on_answered(leave_answer::left, at(15s) - 1ns, 0.0), nothing);
  EXPECT_EQ(machine.wake_at(), at(15s));
}

TEST(Farewell, IsNotOverByALateAnswerToWhatWasSentBeforeTheLostRequestWasDead) {
  farewell machine = withdrawing(at(15s));
  static_cast<void>(machine.start(at(14s)));

  EXPECT_EQ(machine.on_answered(leave_answer::left, at(16s), 0.0), nothing);
  EXPECT_EQ(machine.wake_at(), at(16s));
  EXPECT_EQ(machine.on_timer(at(16s)), withdraw);
  EXPECT_EQ(machine.on_answered(leave_answer::not_there, at(16s), 0.0), over);
}

TEST(Farewell, TellsTheReleaseAtOnceThoughItGoesOnWithdrawing) {
  farewell machine{usual_times, farewell::kind::release, at(15s), at(40s)};
  ASSERT_EQ(machine.start(at(0s)), release);

  EXPECT_EQ(machine.on_answered(leave_answer::left, at(1s), 0.0),
            (farewell_actions{.tell = release_outcome::released}));

  EXPECT_EQ(machine.on_timer(machine.wake_at()), withdraw);
}

TEST(Farewell, LearnsOfALateRequestWhileAnAnswerIsAwaited) {
  farewell machine = releasing();
  static_cast<void>(machine.start(at(0s)));
  ASSERT_EQ(machine.on_late_request(at(20s), at(1s)), nothing);

  EXPECT_EQ(machine.on_answered(leave_answer::left, at(2s), 0.0),
            (farewell_actions{.tell = release_outcome::released}));
  EXPECT_EQ(machine.wake_at(), at(12s));
}

TEST(Farewell, LearnsOfALateRequestAfterTheStoreHasHeard) {
  farewell machine = withdrawing(at(5s));
  static_cast<void>(machine.start(at(0s)));
  ASSERT_EQ(machine.on_answered(leave_answer::left, at(1s), 0.0), nothing);

  ASSERT_EQ(machine.on_late_request(at(20s), at(2s)), nothing);

  EXPECT_EQ(machine.on_timer(machine.wake_at()), withdraw);
  ASSERT_EQ(machine.on_answered(leave_answer::not_there, at(19s), 0.0), nothing);
  EXPECT_EQ(machine.wake_at(), at(20s));
}

TEST(Farewell, StartsAgainForARequestThatTurnedOutLateWhenAllSeemedOver) {
  farewell machine = releasing();
  static_cast<void>(machine.start(at(0s)));
  ASSERT_TRUE(machine.on_answered(leave_answer::left, at(1s), 0.0).over);

  ASSERT_EQ(machine.on_late_request(at(5s), at(2s)), nothing);

  EXPECT_EQ(machine.wake_at(), at(5s));
  EXPECT_EQ(machine.on_timer(at(5s)), withdraw);
  EXPECT_EQ(machine.on_answered(leave_answer::left, at(5s), 0.0), over);
}

TEST(Farewell, NeverForgetsTheLatestOfSeveralLateRequests) {
  farewell machine = withdrawing(at(20s));
  static_cast<void>(machine.start(at(0s)));
  ASSERT_EQ(machine.on_late_request(at(5s), at(1s)), nothing);

  EXPECT_FALSE(machine.on_answered(leave_answer::left, at(6s), 0.0).over);
}

TEST(Farewell, DoesNotPutOffARetryForALateRequest) {
  farewell machine = releasing();
  static_cast<void>(machine.start(at(0s)));
  static_cast<void>(machine.on_answered(failure(errc::unavailable), at(1s), 0.0));

  ASSERT_EQ(machine.on_late_request(at(30s), at(1s)), nothing);

  EXPECT_EQ(machine.wake_at(), at(1'010ms));
}

// ---- a delayed start ----

TEST(Farewell, SaysNothingBeforeItsStart) {
  farewell machine = withdrawing();
  machine.start_at(at(3s));

  EXPECT_EQ(machine.wake_at(), at(3s));
  EXPECT_EQ(machine.on_timer(at(3s) - 1ns), nothing);
  EXPECT_EQ(machine.on_reconnected(at(3s) - 1ns), nothing);
  EXPECT_EQ(machine.on_timer(at(3s)), withdraw);
}

TEST(Farewell, StartsWithAReconnectAtItsTime) {
  farewell machine = withdrawing();
  machine.start_at(at(3s));

  EXPECT_EQ(machine.on_reconnected(at(3s)), withdraw);
  EXPECT_EQ(machine.on_timer(at(3s)), nothing);
}

TEST(Farewell, DoesNotStartEarlierForALateRequest) {
  farewell machine = withdrawing();
  machine.start_at(at(30s));

  ASSERT_EQ(machine.on_late_request(at(5s), at(1s)), nothing);

  EXPECT_EQ(machine.wake_at(), at(30s));
}

TEST(Farewell, DoesNotStartLaterForALateRequest) {
  farewell machine = withdrawing();
  machine.start_at(at(3s));

  ASSERT_EQ(machine.on_late_request(at(60s), at(1s)), nothing);

  EXPECT_EQ(machine.wake_at(), at(3s));
}

TEST(Farewell, TellsNobodyAfterADelayedStart) {
  farewell machine = releasing();
  machine.start_at(at(3s));
  static_cast<void>(machine.on_timer(at(3s)));

  EXPECT_EQ(machine.on_answered(leave_answer::left, at(4s), 0.0), over);
}

// ---- whatever happens ----

TEST(Farewell, EndsAndNeverLeavesALostRequestBehindWhateverHappens) {
  for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
    SCOPED_TRACE(seed);
    base::random source{seed};
    const auto some_time = [&source] { return at(duration{source.below(duration{60s}.count())}); };
    time_point late_until = source.chance(0.5) ? some_time() : time_point::min();
    const bool releases = source.chance(0.5);
    farewell machine{usual_times, releases ? farewell::kind::release : farewell::kind::withdraw,
                     late_until, at(40s)};
    time_point now = at(0s);
    bool under_way = false;
    time_point sent_at = now;
    bool last_was_heard = false;
    int told = 0;
    bool gave_up = false;
    std::optional<time_point> heard_at;
    const auto follow = [&](const farewell_actions& actions) {
      ASSERT_FALSE(actions.send_release && actions.send_withdraw);
      if (actions.send_release || actions.send_withdraw) {
        ASSERT_FALSE(under_way) << "two requests under way";
        ASSERT_FALSE(actions.send_release && heard_at);
        under_way = true;
        sent_at = now;
      }
      if (actions.tell) ++told;
      gave_up = actions.over;
    };
    ASSERT_NO_FATAL_FAILURE(follow(machine.start(now)));

    int steps = 0;
    while (!gave_up) {
      ASSERT_LT(++steps, 1'000) << "never ends";
      if (under_way) {
        now += duration{source.below(duration{2s}.count())};
        under_way = false;
        const bool heard = source.chance(0.4);
        if (heard) heard_at = now;
        last_was_heard = heard;
        ASSERT_NO_FATAL_FAILURE(follow(machine.on_answered(
            heard ? answer{source.chance(0.5) ? leave_answer::left : leave_answer::not_there}
                  : failure(source.chance(0.5) ? errc::unavailable : errc::outcome_unknown),
            now, source.unit())));
      } else if (source.chance(0.1)) {
        ASSERT_NO_FATAL_FAILURE(follow(machine.on_reconnected(now)));
      } else if (source.chance(0.05)) {
        const time_point until = some_time();
        late_until = std::max(late_until, until);
        ASSERT_NO_FATAL_FAILURE(follow(machine.on_late_request(until, now)));
      } else {
        ASSERT_NE(machine.wake_at(), time_point::max()) << "forgotten";
        now = std::max(now, machine.wake_at());
        ASSERT_NO_FATAL_FAILURE(follow(machine.on_timer(now)));
        ASSERT_TRUE(under_way) << "asked to be called and did nothing";
      }
    }

    ASSERT_EQ(told, releases ? 1 : 0);
    ASSERT_GE(last_was_heard ? sent_at : now, late_until) << "a lost request may still come";
    if (!heard_at) {
      ASSERT_GE(now, at(40s)) << "gave up before the lease lapsed";
    }
  }
}

}  // namespace
}  // namespace sallyport::core
