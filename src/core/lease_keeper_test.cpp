#include "core/lease_keeper.hpp"

#include "base/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ostream>

namespace sallyport::core {

std::ostream& operator<<(std::ostream& out, const keeper_actions& actions) {
  out << (actions.send_renewal ? "[renew]" : "") << (actions.tell_held ? "[held]" : "")
      << (actions.tell_suspect ? "[suspect]" : "") << (actions.tell_lost ? "[lost]" : "");
  return out;
}

namespace {

using namespace std::chrono_literals;
using phase = lease_keeper::phase;

constexpr keeper_actions nothing{};
constexpr keeper_actions renew{.send_renewal = true};
constexpr keeper_actions lost{.tell_lost = true};
constexpr keeper_actions suspect{.tell_suspect = true};
constexpr keeper_actions held{.tell_held = true};

/// 1,000 hours is a multiple of every lease used here, so that the renewal grid starts at at(0s).
constexpr time_point at(duration since_start) { return time_point{1'000h} + since_start; }

/// A lease of 24 s has a grid of 1 s; it is renewed at 8 s, suspect at 16 s and lost at 23 s.
const timing& usual_times() {
  static const timing times{.lease_length = 24s,
                            .margin = 1s,
                            .heartbeat = 1s,
                            .claim_window = 3s,
                            .ticket_length = 6s,
                            .request_timeout = 2s,
                            .store_patience = 10s,
                            .renew = renewal::automatic};
  return times;
}

const timing& fixed_times() {
  static const timing times = [] {
    timing fixed = usual_times();
    fixed.renew = renewal::never;
    return fixed;
  }();
  return times;
}

confirmation whole_lease(time_point from) { return {from, 24s, false}; }
confirmation handed_over(time_point from) { return {from, 3s, true}; }

lease_keeper begun(const timing& times = usual_times()) {
  lease_keeper keeper{times, whole_lease(at(0s)), at(0s)};
  EXPECT_EQ(keeper.begin(at(0s)), nothing);
  return keeper;
}

lease_keeper renewing() {
  lease_keeper keeper = begun();
  EXPECT_EQ(keeper.on_timer(at(8s)), renew);
  return keeper;
}

lease_keeper suspected() {
  lease_keeper keeper = renewing();
  EXPECT_EQ(keeper.on_timer(at(16s)), suspect);
  return keeper;
}

lease_keeper lost_by_clock() {
  lease_keeper keeper = suspected();
  EXPECT_EQ(keeper.on_timer(at(23s)), lost);
  return keeper;
}

lease_keeper ended() {
  lease_keeper keeper = renewing();
  keeper.end();
  return keeper;
}

// ---- the deadline ----

TEST(LeaseKeeper, CountsItsDeadlineFromBeforeTheRequestLeft) {
  const lease_keeper keeper{usual_times(), whole_lease(at(0s)), at(5s)};

  EXPECT_EQ(keeper.deadline(), at(23s));
}

TEST(LeaseKeeper, TakesNothingOffWithoutAMargin) {
  timing times = usual_times();
  times.margin = 0s;

  const lease_keeper keeper{times, whole_lease(at(0s)), at(0s)};

  EXPECT_EQ(keeper.deadline(), at(24s));
}

TEST(LeaseKeeper, CountsAnAlreadyGrantedLeaseByWhatTheStoreSaysIsLeft) {
  const lease_keeper keeper{usual_times(), {at(0s), 10s, false}, at(1s)};

  EXPECT_EQ(keeper.deadline(), at(9s));
}

TEST(LeaseKeeper, MovesItsDeadlineWithAConfirmedRenewal) {
  lease_keeper keeper = renewing();

  EXPECT_EQ(keeper.on_confirmed(whole_lease(at(8s)), at(9s)), nothing);

  EXPECT_EQ(keeper.deadline(), at(31s));
  EXPECT_EQ(keeper.state(), phase::held);
}

TEST(LeaseKeeper, NeverMovesItsDeadlineBackwards) {
  lease_keeper keeper = renewing();

  static_cast<void>(keeper.on_confirmed({at(8s), 2s, false}, at(8s)));

  EXPECT_EQ(keeper.deadline(), at(23s));
}

// ---- held ----

TEST(LeaseKeeper, HasNothingToDoBeforeAThirdHasPassed) {
  lease_keeper keeper = begun();

  EXPECT_EQ(keeper.wake_at(), at(8s));
  EXPECT_EQ(keeper.on_timer(at(8s) - 1ns), nothing);
  EXPECT_EQ(keeper.state(), phase::held);
}

TEST(LeaseKeeper, RenewsAtAThird) {
  lease_keeper keeper = begun();

  EXPECT_EQ(keeper.on_timer(at(8s)), renew);

  EXPECT_TRUE(keeper.renewal_under_way());
  EXPECT_EQ(keeper.state(), phase::held);
}

TEST(LeaseKeeper, RenewsEarlyRatherThanOffTheCommonGrid) {
  const lease_keeper keeper{usual_times(), whole_lease(at(300ms)), at(400ms)};

  EXPECT_EQ(keeper.wake_at(), at(8s));
}

TEST(LeaseKeeper, DoesNotRenewAtOnceHoweverLittleTheStoreConfirms) {
  lease_keeper keeper{usual_times(), {at(300ms), 1500ms, false}, at(300ms)};

  EXPECT_EQ(keeper.begin(at(300ms)), nothing);
  EXPECT_EQ(keeper.wake_at(), at(550ms));
}

TEST(LeaseKeeper, DoesNotGoRoundWithAStoreThatNeverConfirmsMuch) {
  lease_keeper keeper = begun();
  time_point now = at(0s);
  int renewals = 0;

  while (now < at(20s)) {
    now = keeper.wake_at();
    if (!keeper.on_timer(now).send_renewal) continue;
    ++renewals;
    ASSERT_FALSE(keeper.on_confirmed({now, 2s, false}, now).send_renewal);
  }

  EXPECT_LT(renewals, 20 * 3);
}

TEST(LeaseKeeper, SendsOnlyOneRenewalAtATime) {
  lease_keeper keeper = renewing();

  EXPECT_EQ(keeper.on_timer(at(8s)), nothing);
  EXPECT_EQ(keeper.on_timer(at(15s)), nothing);
}

TEST(LeaseKeeper, IsSuspectAndRenewsAtOnceWhenTheConnectionBreaks) {
  lease_keeper keeper = begun();

  EXPECT_EQ(keeper.on_disconnected(at(1s)),
            (keeper_actions{.send_renewal = true, .tell_suspect = true}));
  EXPECT_EQ(keeper.state(), phase::suspect);
  EXPECT_EQ(keeper.deadline(), at(23s));
  EXPECT_FALSE(keeper.fresh(at(1s)));
  EXPECT_EQ(keeper.on_disconnected(at(2s)), nothing);

  EXPECT_EQ(keeper.on_confirmed(whole_lease(at(1s)), at(3s)), held);
  EXPECT_EQ(keeper.deadline(), at(24s));
}

TEST(LeaseKeeper, DoesNotStormAStoreThatHangsUpEachTime) {
  lease_keeper keeper = begun();
  EXPECT_EQ(keeper.on_disconnected(at(1s)),
            (keeper_actions{.send_renewal = true, .tell_suspect = true}));
  EXPECT_EQ(keeper.on_renewal_failed(at(1s), 0.5), nothing);

  EXPECT_EQ(keeper.on_disconnected(at(1s)), nothing);
}

TEST(LeaseKeeper, TakesABrokenConnectionForNothingWhenItIsFixedOrOver) {
  lease_keeper fixed = begun(fixed_times());
  lease_keeper gone = lost_by_clock();

  EXPECT_EQ(fixed.on_disconnected(at(1s)), nothing);
  EXPECT_EQ(fixed.state(), phase::held);
  EXPECT_EQ(gone.on_disconnected(at(24s)), nothing);
}

TEST(LeaseKeeper, WaitsForSuspicionWhileItRenews) { EXPECT_EQ(renewing().wake_at(), at(16s)); }

TEST(LeaseKeeper, RenewsAgainAThirdAfterTheLastRenewal) {
  lease_keeper keeper = renewing();
  ASSERT_EQ(keeper.on_confirmed(whole_lease(at(8s)), at(9s)), nothing);

  EXPECT_EQ(keeper.wake_at(), at(16s));
  EXPECT_EQ(keeper.on_timer(at(16s)), renew);
}

TEST(LeaseKeeper, RenewsAtOnceWhenTheAnswerTookLongerThanAThird) {
  lease_keeper keeper = renewing();

  EXPECT_EQ(keeper.on_confirmed(whole_lease(at(1s)), at(15s)), renew);
}

TEST(LeaseKeeper, IsLostWhenTheStoreSaysNotYours) {
  lease_keeper keeper = renewing();

  EXPECT_EQ(keeper.on_refused(at(9s)), lost);

  EXPECT_EQ(keeper.state(), phase::lost);
  EXPECT_FALSE(keeper.renewal_under_way());
}

TEST(LeaseKeeper, IsLostByANoticeThatNobodyAskedFor) {
  lease_keeper keeper = begun();

  EXPECT_EQ(keeper.on_refused(at(1s)), lost);
}

TEST(LeaseKeeper, CountsARenewalSentOnItsBehalfAsItsOwn) {
  lease_keeper keeper = begun();

  keeper.renewal_sent();

  EXPECT_TRUE(keeper.renewal_under_way());
  EXPECT_EQ(keeper.on_timer(at(8s)), nothing);
  EXPECT_EQ(keeper.on_confirmed(whole_lease(at(7s)), at(9s)), nothing);
  EXPECT_EQ(keeper.deadline(), at(30s));
}

TEST(LeaseKeeper, SaysEverythingThatIsDueAtOnceAfterALongPause) {
  lease_keeper keeper = begun();

  EXPECT_EQ(keeper.on_timer(at(17s)), (keeper_actions{.send_renewal = true, .tell_suspect = true}));
}

// ---- retries ----

TEST(LeaseKeeper, TriesAgainAfterAFailedRenewal) {
  lease_keeper keeper = renewing();

  EXPECT_EQ(keeper.on_renewal_failed(at(10s), 0.0), nothing);

  EXPECT_EQ(keeper.wake_at(), at(10'250ms));
  EXPECT_EQ(keeper.on_timer(at(10'250ms)), renew);
}

TEST(LeaseKeeper, SpreadsItsRetries) {
  lease_keeper keeper = renewing();

  static_cast<void>(keeper.on_renewal_failed(at(10s), 0.5));

  EXPECT_EQ(keeper.wake_at(), at(10'375ms));
}

TEST(LeaseKeeper, WaitsLongerAfterEveryFailureUpToATwelfthOfTheLease) {
  lease_keeper keeper = renewing();
  duration waited[5] = {};
  time_point now = at(8s);

  for (duration& wait : waited) {
    static_cast<void>(keeper.on_renewal_failed(now, 0.0));
    wait = keeper.wake_at() - now;
    now = keeper.wake_at();
    ASSERT_TRUE(keeper.on_timer(now).send_renewal);
  }

  EXPECT_EQ(waited[0], 250ms);
  EXPECT_EQ(waited[1], 500ms);
  EXPECT_EQ(waited[2], 1s);
  EXPECT_EQ(waited[3], 1s);
  EXPECT_EQ(waited[4], 1s);
}

TEST(LeaseKeeper, ForgetsItsFailuresWithAConfirmedRenewal) {
  lease_keeper keeper = renewing();
  static_cast<void>(keeper.on_renewal_failed(at(8s), 0.0));
  ASSERT_EQ(keeper.on_timer(at(9s)), renew);
  static_cast<void>(keeper.on_renewal_failed(at(9s), 0.0));
  ASSERT_EQ(keeper.on_timer(at(10s)), renew);
  ASSERT_EQ(keeper.on_confirmed(whole_lease(at(10s)), at(10s)), nothing);
  ASSERT_EQ(keeper.on_timer(at(18s)), renew);

  static_cast<void>(keeper.on_renewal_failed(at(18s), 0.0));

  EXPECT_EQ(keeper.wake_at(), at(18'250ms));
}

TEST(LeaseKeeper, FailsManyTimesAndIsStillLostOnlyAtItsDeadline) {
  lease_keeper keeper = begun();
  time_point now = keeper.wake_at();

  while (keeper.state() == phase::held || keeper.state() == phase::suspect) {
    ASSERT_LT(keeper.deadline() - 24s, now);
    const keeper_actions actions = keeper.on_timer(now);
    if (actions.tell_lost) break;
    if (actions.send_renewal) static_cast<void>(keeper.on_renewal_failed(now, 0.5));
    now = keeper.wake_at();
  }

  EXPECT_EQ(now, at(23s));
  EXPECT_EQ(keeper.state(), phase::lost);
}

// ---- suspect ----

TEST(LeaseKeeper, IsSuspectAtTwoThirds) {
  lease_keeper keeper = renewing();

  EXPECT_EQ(keeper.on_timer(at(16s) - 1ns), nothing);
  EXPECT_EQ(keeper.on_timer(at(16s)), suspect);

  EXPECT_EQ(keeper.state(), phase::suspect);
  EXPECT_EQ(keeper.deadline(), at(23s));
}

TEST(LeaseKeeper, SaysSuspectOnce) {
  lease_keeper keeper = suspected();

  EXPECT_EQ(keeper.on_timer(at(17s)), nothing);
  EXPECT_EQ(keeper.wake_at(), at(23s));
}

TEST(LeaseKeeper, IsHeldAgainWhenARenewalIsConfirmedInTime) {
  lease_keeper keeper = suspected();

  EXPECT_EQ(keeper.on_confirmed(whole_lease(at(14s)), at(17s)), held);

  EXPECT_EQ(keeper.state(), phase::held);
  EXPECT_EQ(keeper.deadline(), at(37s));
}

TEST(LeaseKeeper, StaysSuspectWhenTheConfirmationIsItselfOld) {
  lease_keeper keeper = suspected();

  EXPECT_EQ(keeper.on_confirmed(whole_lease(at(1s)), at(20s)),
            (keeper_actions{.send_renewal = true, .tell_held = true, .tell_suspect = true}));

  EXPECT_EQ(keeper.state(), phase::suspect);
  EXPECT_EQ(keeper.deadline(), at(24s));
}

TEST(LeaseKeeper, IsLostFromSuspectWhenTheStoreSaysNotYours) {
  lease_keeper keeper = suspected();

  EXPECT_EQ(keeper.on_refused(at(17s)), lost);
}

TEST(LeaseKeeper, TriesAgainWhileSuspect) {
  lease_keeper keeper = suspected();

  ASSERT_EQ(keeper.on_renewal_failed(at(17s), 0.0), nothing);

  EXPECT_EQ(keeper.state(), phase::suspect);
  EXPECT_EQ(keeper.on_timer(at(17'250ms)), renew);
}

TEST(LeaseKeeper, SkipsSuspicionWhenTheMarginReachesOverIt) {
  timing times = usual_times();
  times.margin = 10s;
  lease_keeper keeper{times, whole_lease(at(0s)), at(0s)};
  ASSERT_EQ(keeper.begin(at(0s)), nothing);
  ASSERT_EQ(keeper.on_timer(at(8s)), renew);

  EXPECT_EQ(keeper.wake_at(), at(14s));
  EXPECT_EQ(keeper.on_timer(at(14s)), lost);
}

// ---- lost ----

TEST(LeaseKeeper, IsLostExactlyAtItsDeadline) {
  lease_keeper keeper = suspected();

  EXPECT_EQ(keeper.on_timer(at(23s) - 1ns), nothing);
  EXPECT_EQ(keeper.on_timer(at(23s)), lost);
}

TEST(LeaseKeeper, DropsLeaseWhenRenewalIsLate) {
  lease_keeper keeper = suspected();

  EXPECT_EQ(keeper.on_confirmed(whole_lease(at(22s)), at(23s)), lost);

  EXPECT_EQ(keeper.deadline(), at(23s));
  EXPECT_EQ(keeper.state(), phase::lost);
}

TEST(LeaseKeeper, IsLostByAFailureThatArrivesAfterTheDeadline) {
  lease_keeper keeper = suspected();

  EXPECT_EQ(keeper.on_renewal_failed(at(30s), 0.0), lost);
}

TEST(LeaseKeeper, SaysLostOnlyOnceAndNeverSendsAgain) {
  lease_keeper keeper = lost_by_clock();

  EXPECT_EQ(keeper.on_timer(at(24s)), nothing);
  EXPECT_EQ(keeper.on_refused(at(24s)), nothing);
  EXPECT_EQ(keeper.on_renewal_failed(at(24s), 0.0), nothing);
  EXPECT_EQ(keeper.wake_at(), time_point::max());
}

TEST(LeaseKeeper, IsNotRevivedByALateConfirmation) {
  lease_keeper keeper = lost_by_clock();

  EXPECT_EQ(keeper.on_confirmed(whole_lease(at(22s)), at(24s)), nothing);

  EXPECT_EQ(keeper.state(), phase::lost);
  EXPECT_EQ(keeper.deadline(), at(23s));
}

TEST(LeaseKeeper, StaysLostWhenItIsReleased) {
  lease_keeper keeper = lost_by_clock();

  keeper.end();

  EXPECT_EQ(keeper.state(), phase::lost);
}

TEST(LeaseKeeper, TellsALeaseOfWhichNothingIsLeftLostAtOnce) {
  lease_keeper keeper{usual_times(), whole_lease(at(0s)), at(23s)};

  EXPECT_EQ(keeper.begin(at(23s)), lost);
}

// ---- ended ----

TEST(LeaseKeeper, DoesNothingAnyMoreOnceEnded) {
  lease_keeper keeper = ended();

  EXPECT_EQ(keeper.state(), phase::ended);
  EXPECT_EQ(keeper.wake_at(), time_point::max());
  EXPECT_EQ(keeper.on_timer(at(30s)), nothing);
  EXPECT_EQ(keeper.on_confirmed(whole_lease(at(8s)), at(9s)), nothing);
  EXPECT_EQ(keeper.on_refused(at(9s)), nothing);
  EXPECT_EQ(keeper.on_renewal_failed(at(9s), 0.0), nothing);
  EXPECT_EQ(keeper.state(), phase::ended);
}

TEST(LeaseKeeper, KeepsItsDeadlineOnceEnded) {
  lease_keeper keeper = ended();

  static_cast<void>(keeper.on_confirmed(whole_lease(at(8s)), at(9s)));

  EXPECT_EQ(keeper.deadline(), at(23s));
}

// ---- handed over, not claimed ----

TEST(LeaseKeeper, KeepsItsClaimBackWhereTheBackendAsksForIt) {
  timing times = usual_times();
  times.claim_delay = 100ms;
  lease_keeper keeper{times, handed_over(at(0s)), at(0s)};

  EXPECT_EQ(keeper.begin(at(0s)), nothing);
  EXPECT_EQ(keeper.wake_at(), at(100ms));
  EXPECT_EQ(keeper.on_timer(at(100ms)), renew);
}

TEST(LeaseKeeper, ClaimsWhatItKeptBackWhenItIsAskedTo) {
  timing times = usual_times();
  times.claim_delay = 100ms;
  lease_keeper keeper{times, handed_over(at(0s)), at(0s)};
  ASSERT_EQ(keeper.begin(at(0s)), nothing);

  EXPECT_EQ(keeper.claim_now(at(1ms)), renew);
  EXPECT_EQ(keeper.claim_now(at(2ms)), nothing) << "it is under way";
  EXPECT_EQ(begun().claim_now(at(1ms)), nothing) << "nothing to claim";
}

TEST(LeaseKeeper, ClaimsAtOnceWhenLittleOfTheWindowIsLeft) {
  timing times = usual_times();
  times.claim_delay = 100ms;
  const time_point late = at(3s - times.margin - 300ms);
  lease_keeper keeper{times, handed_over(at(0s)), late};

  EXPECT_EQ(keeper.begin(late), renew);
}

TEST(LeaseKeeper, ClaimsAHandedOverGrantAtOnce) {
  lease_keeper keeper{usual_times(), handed_over(at(0s)), at(100ms)};

  EXPECT_EQ(keeper.begin(at(100ms)), renew);

  EXPECT_TRUE(keeper.provisional());
  EXPECT_EQ(keeper.deadline(), at(2s));
}

TEST(LeaseKeeper, CountsFromTheClaimOnceItIsConfirmed) {
  lease_keeper keeper{usual_times(), handed_over(at(0s)), at(100ms)};
  ASSERT_EQ(keeper.begin(at(100ms)), renew);

  EXPECT_EQ(keeper.on_confirmed(whole_lease(at(100ms)), at(200ms)), nothing);

  EXPECT_FALSE(keeper.provisional());
  EXPECT_EQ(keeper.deadline(), at(23'100ms));
}

TEST(LeaseKeeper, LosesAHandedOverGrantWhoseClaimIsRefused) {
  lease_keeper keeper{usual_times(), handed_over(at(0s)), at(100ms)};
  ASSERT_EQ(keeper.begin(at(100ms)), renew);

  EXPECT_EQ(keeper.on_refused(at(200ms)), lost);
}

TEST(LeaseKeeper, LosesAHandedOverGrantWhenItsClaimHasNoAnswerInTheWindow) {
  lease_keeper keeper{usual_times(), handed_over(at(0s)), at(100ms)};
  ASSERT_EQ(keeper.begin(at(100ms)), renew);

  EXPECT_EQ(keeper.on_timer(at(2s)), lost);
}

TEST(LeaseKeeper, TriesAFailedClaimAgainWellInsideTheWindowHoweverLongTheLeaseIs) {
  timing times = usual_times();
  times.lease_length = 100s;
  lease_keeper keeper{times, handed_over(at(0s)), at(100ms)};
  ASSERT_EQ(keeper.begin(at(100ms)), renew);

  static_cast<void>(keeper.on_renewal_failed(at(200ms), 0.999));

  EXPECT_LT(keeper.wake_at(), at(500ms));
  EXPECT_EQ(keeper.on_timer(keeper.wake_at()), renew);
}

// ---- fixed leases ----

TEST(LeaseKeeper, NeverRenewsAFixedLease) {
  lease_keeper keeper = begun(fixed_times());

  EXPECT_EQ(keeper.wake_at(), at(23s));
  EXPECT_EQ(keeper.on_timer(at(8s)), nothing);
  EXPECT_EQ(keeper.on_timer(at(22s)), nothing);
}

TEST(LeaseKeeper, NeverSuspectsAFixedLease) {
  lease_keeper keeper = begun(fixed_times());

  EXPECT_EQ(keeper.on_timer(at(16s)), nothing);
  EXPECT_EQ(keeper.state(), phase::held);
}

TEST(LeaseKeeper, LosesAFixedLeaseAtItsDeadline) {
  lease_keeper keeper = begun(fixed_times());

  EXPECT_EQ(keeper.on_timer(at(23s)), lost);
}

TEST(LeaseKeeper, ClaimsAFixedLeaseThatWasHandedOverAndThenLeavesIt) {
  lease_keeper keeper{fixed_times(), handed_over(at(0s)), at(100ms)};

  ASSERT_EQ(keeper.begin(at(100ms)), renew);
  ASSERT_EQ(keeper.on_confirmed(whole_lease(at(100ms)), at(200ms)), nothing);

  EXPECT_EQ(keeper.wake_at(), at(23'100ms));
  EXPECT_EQ(keeper.on_timer(at(20s)), nothing);
}

TEST(LeaseKeeper, TriesTheFailedClaimOfAFixedLeaseAgain) {
  lease_keeper keeper{fixed_times(), handed_over(at(0s)), at(100ms)};
  ASSERT_EQ(keeper.begin(at(100ms)), renew);
  ASSERT_EQ(keeper.on_renewal_failed(at(200ms), 0.0), nothing);

  EXPECT_EQ(keeper.on_timer(keeper.wake_at()), renew);
}

TEST(LeaseKeeper, NeverSuspectsAFixedLeaseThatIsNotClaimedYet) {
  timing times = fixed_times();
  times.margin = 100ms;
  lease_keeper keeper{times, handed_over(at(0s)), at(100ms)};
  ASSERT_EQ(keeper.begin(at(100ms)), renew);

  EXPECT_EQ(keeper.wake_at(), at(2'900ms));
  EXPECT_EQ(keeper.on_timer(at(2'500ms)), nothing);
  EXPECT_EQ(keeper.state(), phase::held);
}

// ---- fresh ----

TEST(LeaseKeeper, IsFreshWhileAThirdIsLeft) {
  const lease_keeper keeper = begun();

  EXPECT_TRUE(keeper.fresh(at(16s) - 1ns));
  EXPECT_FALSE(keeper.fresh(at(16s)));
}

TEST(LeaseKeeper, IsNotFreshAtItsDeadline) {
  timing times = usual_times();
  times.margin = 20s;
  const lease_keeper keeper{times, whole_lease(at(0s)), at(0s)};

  EXPECT_TRUE(keeper.fresh(at(4s) - 1ns));
  EXPECT_FALSE(keeper.fresh(at(4s)));
}

TEST(LeaseKeeper, IsNotFreshUnlessHeld) {
  EXPECT_FALSE(suspected().fresh(at(1s)));
  EXPECT_FALSE(lost_by_clock().fresh(at(1s)));
  EXPECT_FALSE(ended().fresh(at(1s)));
}

TEST(LeaseKeeper, MeasuresTheFreshnessOfAFixedLeaseToo) {
  const lease_keeper keeper = begun(fixed_times());

  EXPECT_TRUE(keeper.fresh(at(15s)));
  EXPECT_FALSE(keeper.fresh(at(16s)));
}

// ---- whatever happens ----

/// Feeds one keeper random events and compares what it says with what a lease may do.
class keeper_ordeal {
 public:
  explicit keeper_ordeal(std::uint64_t seed)
      : source_(seed), times_(random_times()), now_(at(1s)), keeper_(times_, first_proof(), now_) {}

  void run() {
    ASSERT_NO_FATAL_FAILURE(check(keeper_.begin(now_)));
    for (int step = 0; step < 200; ++step) {
      ASSERT_NO_FATAL_FAILURE(random_step());
    }
  }

 private:
  timing random_times() {
    timing times = usual_times();
    times.lease_length = 100ms + duration{source_.below(duration{60s}.count())};
    times.margin =
        duration{source_.below(static_cast<std::uint64_t>(times.lease_length.count()) / 2)};
    times.renew = source_.chance(0.7) ? renewal::automatic : renewal::never;
    return times;
  }

  confirmation first_proof() {
    const bool provisional = source_.chance(0.5);
    provisional_ = provisional;
    return {now_ - 1ns, times_.lease_length, provisional};
  }

  void random_step() {
    // Often exactly when the keeper wants to be called, sometimes long after, sometimes at once.
    if (source_.chance(0.6) && keeper_.wake_at() != time_point::max()) {
      now_ = std::max(now_, keeper_.wake_at());
    } else if (source_.chance(0.5)) {
      now_ += duration{source_.below(static_cast<std::uint64_t>(times_.lease_length.count()))};
    }
    const std::uint64_t choice = source_.below(10);
    if (choice < 5) {
      ASSERT_NO_FATAL_FAILURE(check(keeper_.on_timer(now_)));
      ASSERT_GT(keeper_.wake_at(), now_) << "asks to be called again and again";
    } else if (choice < 8 && renewal_sent_at_ != time_point::min()) {
      const time_point sent = std::exchange(renewal_sent_at_, time_point::min());
      const duration span{
          source_.below(static_cast<std::uint64_t>(times_.lease_length.count()) + 1)};
      const bool in_time = now_ < keeper_.deadline();
      if (in_time) provisional_ = false;
      ASSERT_NO_FATAL_FAILURE(check(keeper_.on_confirmed({sent, span, false}, now_)));
    } else if (choice == 8 && renewal_sent_at_ != time_point::min()) {
      renewal_sent_at_ = time_point::min();
      ASSERT_NO_FATAL_FAILURE(check(keeper_.on_renewal_failed(now_, source_.unit())));
    } else if (choice == 9 && source_.chance(0.05)) {
      ASSERT_NO_FATAL_FAILURE(check(keeper_.on_refused(now_)));
      ASSERT_TRUE(over_);
    } else if (choice == 9 && source_.chance(0.05)) {
      keeper_.end();
      over_ = true;
      ASSERT_NO_FATAL_FAILURE(check(nothing));
    }
  }

  void check(const keeper_actions& actions) {
    ASSERT_GE(keeper_.deadline(), deadline_) << "the deadline moved backwards";
    if (over_) {
      ASSERT_EQ(actions, nothing);
      ASSERT_EQ(keeper_.deadline(), deadline_);
      ASSERT_EQ(keeper_.wake_at(), time_point::max());
      ASSERT_TRUE(keeper_.state() == phase::lost || keeper_.state() == phase::ended);
      return;
    }
    deadline_ = keeper_.deadline();
    if (actions.tell_held) {
      ASSERT_TRUE(suspect_);
      suspect_ = false;
    }
    if (actions.tell_suspect) {
      ASSERT_FALSE(suspect_);
      ASSERT_EQ(times_.renew, renewal::automatic);
      suspect_ = true;
    }
    if (actions.send_renewal) {
      ASSERT_EQ(renewal_sent_at_, time_point::min()) << "two renewals under way";
      ASSERT_TRUE(times_.renew == renewal::automatic || provisional_);
      ASSERT_FALSE(actions.tell_lost);
      renewal_sent_at_ = now_;
    }
    over_ = actions.tell_lost;
    ASSERT_EQ(keeper_.state() == phase::lost, over_);
    ASSERT_EQ(keeper_.state() == phase::suspect, suspect_ && !over_);
    if (!over_) {
      ASSERT_LT(now_, keeper_.deadline()) << "valid after the deadline";
      ASSERT_LE(keeper_.wake_at(), keeper_.deadline()) << "nobody would tell the loss";
    }
  }

  base::random source_;
  bool provisional_ = false;
  timing times_;
  time_point now_;
  lease_keeper keeper_;
  time_point deadline_ = time_point::min();
  time_point renewal_sent_at_ = time_point::min();
  bool suspect_ = false;
  bool over_ = false;
};

TEST(LeaseKeeper, KeepsItsInvariantsWhateverHappens) {
  for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
    SCOPED_TRACE(seed);
    keeper_ordeal ordeal{seed};
    ASSERT_NO_FATAL_FAILURE(ordeal.run());
  }
}

}  // namespace
}  // namespace sallyport::core
