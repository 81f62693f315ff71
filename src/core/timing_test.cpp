#include "core/timing.hpp"

#include "base/random.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

namespace sallyport::core {
namespace {

using namespace std::chrono_literals;

timing_inputs usual_inputs() {
  return {.lease_length = 30s,
          .renew = renewal::automatic,
          .lease_granularity = 0s,
          .expiry_granularity = 0s,
          .clock_drift = 0.01,
          .heartbeat = 1s,
          .request_timeout = 2s,
          .store_patience = 10s};
}

TEST(Timing, KeepsALeaseThatTheStoreDoesNotRound) {
  EXPECT_EQ(make_timing(usual_inputs()).lease_length, 30s);
}

TEST(Timing, RoundsALeaseUpToTheStoresGranularity) {
  timing_inputs inputs = usual_inputs();
  inputs.lease_granularity = 1s;

  inputs.lease_length = 2s + 1ns;
  EXPECT_EQ(make_timing(inputs).lease_length, 3s);
  inputs.lease_length = 3s - 1ns;
  EXPECT_EQ(make_timing(inputs).lease_length, 3s);
}

TEST(Timing, LeavesAWholeMultipleOfTheGranularityAlone) {
  timing_inputs inputs = usual_inputs();
  inputs.lease_granularity = 1s;
  inputs.lease_length = 3s;

  EXPECT_EQ(make_timing(inputs).lease_length, 3s);
}

TEST(Timing, RoundsALeaseShorterThanOneStepUpToThatStep) {
  timing_inputs inputs = usual_inputs();
  inputs.lease_granularity = 2s;
  inputs.lease_length = 100ms;

  EXPECT_EQ(make_timing(inputs).lease_length, 2s);
}

TEST(Timing, TakesTheMarginFromDriftAndExpiryGranularity) {
  timing_inputs inputs = usual_inputs();
  inputs.clock_drift = 0.25;
  inputs.expiry_granularity = 5ms;

  EXPECT_EQ(make_timing(inputs).margin, 7'505ms);
}

TEST(Timing, CountsTheMarginFromTheRoundedLease) {
  timing_inputs inputs = usual_inputs();
  inputs.clock_drift = 0.5;
  inputs.lease_granularity = 4s;
  inputs.lease_length = 1s;

  EXPECT_EQ(make_timing(inputs).margin, 2s);
}

TEST(Timing, HasNoMarginWithoutDriftAndGranularity) {
  timing_inputs inputs = usual_inputs();
  inputs.clock_drift = 0;

  EXPECT_EQ(make_timing(inputs).margin, 0s);
}

TEST(Timing, BoundsTheClaimWindowByHeartbeatsForALongLease) {
  const timing times = make_timing(usual_inputs());

  EXPECT_EQ(times.claim_window, 3s + times.margin);
  EXPECT_EQ(times.heartbeat, 1s);
}

TEST(Timing, LeavesAClaimWindowBeyondTheMarginOfAVeryLongLease) {
  timing_inputs inputs = usual_inputs();
  inputs.lease_length = 1h;

  const timing times = make_timing(inputs);

  EXPECT_GT(times.claim_window, times.heartbeat + times.margin);
}

TEST(Timing, BoundsTheClaimWindowByAShortLease) {
  timing_inputs inputs = usual_inputs();
  inputs.lease_length = 900ms;

  EXPECT_EQ(make_timing(inputs).claim_window, 900ms);
}

TEST(Timing, KeepsAClaimBackForASmallPartOfItsWindowAtMost) {
  timing_inputs inputs = usual_inputs();
  EXPECT_EQ(make_timing(inputs).claim_delay, 0s);

  inputs.claim_delay = 5ms;
  EXPECT_EQ(make_timing(inputs).claim_delay, 5ms);
  inputs.lease_length = 32ms;
  EXPECT_EQ(make_timing(inputs).claim_delay, 2ms);
}

TEST(Timing, BeatsFasterForAShortLease) {
  timing_inputs inputs = usual_inputs();
  inputs.lease_length = 900ms;

  EXPECT_EQ(make_timing(inputs).heartbeat, 300ms);
}

TEST(Timing, KeepsATicketForSeveralHeartbeatsAndOneRequest) {
  EXPECT_EQ(make_timing(usual_inputs()).ticket_length, 4 * 1s + 2s);
}

TEST(Timing, PassesOnWhatItDoesNotDecide) {
  timing_inputs inputs = usual_inputs();
  inputs.renew = renewal::never;

  const timing times = make_timing(inputs);

  EXPECT_EQ(times.renew, renewal::never);
  EXPECT_EQ(times.request_timeout, 2s);
  EXPECT_EQ(times.store_patience, 10s);
}

// Promise 5 counts on these for whatever a user may set.
TEST(Timing, KeepsItsSpansInOrderForAnyInputs) {
  base::random source{17};
  for (int round = 0; round < 10'000; ++round) {
    timing_inputs inputs = usual_inputs();
    inputs.lease_length = 100ms + duration{source.below(duration{24h}.count())};
    inputs.heartbeat = 1ms + duration{source.below(duration{10s}.count())};
    inputs.lease_granularity = source.chance(0.5) ? 0s : 1s;
    inputs.clock_drift = source.unit() / 2;

    const timing times = make_timing(inputs);

    ASSERT_GE(times.lease_length, inputs.lease_length);
    ASSERT_LT(times.lease_length, inputs.lease_length + 1s);
    ASSERT_GE(times.margin, 0s);
    ASSERT_LT(times.margin, times.lease_length);
    ASSERT_LE(times.claim_window, times.lease_length);
    ASSERT_GT(times.heartbeat, 0s);
    ASSERT_LE(heartbeats_per_claim_window * times.heartbeat, times.claim_window);
    ASSERT_LT(times.heartbeat, times.ticket_length);
  }
}

TEST(TimingDeathTest, RefusesALeaseOrHeartbeatOfNothing) {
  timing_inputs no_lease = usual_inputs();
  no_lease.lease_length = 0s;
  timing_inputs no_heartbeat = usual_inputs();
  no_heartbeat.heartbeat = 0s;

  EXPECT_DEATH(static_cast<void>(make_timing(no_lease)), "broken invariant");
  EXPECT_DEATH(static_cast<void>(make_timing(no_heartbeat)), "broken invariant");
}

TEST(Backoff, StartsWithTheFirstDelay) {
  EXPECT_EQ(backoff(0, 20ms, 1s, 0.0), 10ms);
  EXPECT_LT(backoff(0, 20ms, 1s, 0.999'999), 20ms);
}

TEST(Backoff, DoublesWithEveryFailure) {
  EXPECT_EQ(backoff(1, 20ms, 1s, 0.0), 20ms);
  EXPECT_EQ(backoff(2, 20ms, 1s, 0.0), 40ms);
  EXPECT_EQ(backoff(5, 20ms, 1s, 0.0), 320ms);
}

TEST(Backoff, StopsGrowingAtItsCap) {
  EXPECT_EQ(backoff(6, 20ms, 1s, 0.0), 500ms);
  EXPECT_EQ(backoff(7, 20ms, 1s, 0.0), 500ms);
}

TEST(Backoff, DoesNotOverflowAfterCountlessFailures) {
  const std::uint32_t countless = std::numeric_limits<std::uint32_t>::max();

  EXPECT_EQ(backoff(countless, 20ms, 1s, 0.0), 500ms);
  EXPECT_EQ(backoff(countless, duration{24h} / 48, duration{24h} / 12, 0.0), 1h);
}

TEST(Backoff, SpreadsOverItsUpperHalf) {
  EXPECT_EQ(backoff(0, 20ms, 1s, 0.5), 15ms);

  base::random source{5};
  duration least = 1h;
  duration most = 0s;
  for (int round = 0; round < 1'000; ++round) {
    const duration delay = backoff(9, 20ms, 1s, source.unit());
    ASSERT_GE(delay, 500ms);
    ASSERT_LT(delay, 1s);
    least = std::min(least, delay);
    most = std::max(most, delay);
  }
  EXPECT_LT(least, 520ms);
  EXPECT_GT(most, 980ms);
}

TEST(Backoff, HonoursACapBelowTheFirstDelay) { EXPECT_EQ(backoff(0, 20ms, 4ms, 0.0), 2ms); }

// ---- how often a waiter asks ----

struct pace_case {
  const char* name;
  std::uint32_t ahead;
  std::uint32_t ticket_stretch;
  last_question before;
  duration pause;
};

class PauseOfWaiter : public testing::TestWithParam<pace_case> {};

constexpr time_point asked_before = time_point{1'000h};
constexpr time_point asked_now = asked_before + 10s;

TEST_P(PauseOfWaiter, IsWhatTheTableSays) {
  const timing times = make_timing(usual_inputs());
  const pace_case& shown = GetParam();

  const backend_api::waiting answer{
      .ask_again_after = 24h, .ahead = shown.ahead, .ticket_stretch = shown.ticket_stretch};

  EXPECT_EQ(pause_of_waiter(times, answer, asked_now, shown.before), shown.pause);
}

INSTANTIATE_TEST_SUITE_P(
    All, PauseOfWaiter,
    testing::Values(
        pace_case{"first_answer", 9'000, 32, {}, 1s},
        pace_case{"store_that_does_not_tell", 0, 1, {asked_before, 0, 1s}, 1s},
        pace_case{"near_the_head", 90, 1, {asked_before, 90, 1s}, 1s},
        pace_case{"grows_to_twice", 9'000, 32, {asked_before, 9'000, 1s}, 2s},
        pace_case{"grows_up_to_the_ticket", 9'000, 32, {asked_before, 9'000, 30s}, 32s},
        pace_case{"shrinks_with_the_ticket", 300, 4, {asked_before, 300, 30s}, 4s},
        pace_case{"is_normal_again_near_the_head", 100, 1, {asked_before, 120, 30s}, 1s},
        // 1,000 places in 10 s: it would be the first after 80 s, and asks four times until then.
        pace_case{"moves_up_slowly", 8'000, 32, {asked_before, 9'000, 30s}, 20s},
        // 8,000 places in 10 s: the first after 1.25 s.
        pace_case{"moves_up_fast", 1'000, 15, {asked_before, 9'000, 30s}, 1s},
        pace_case{"was_not_told_before", 9'000, 32, {asked_before, 0, 1s}, 2s},
        pace_case{"went_back", 9'000, 32, {asked_before, 10, 8s}, 16s},
        pace_case{"stretch_of_zero", 9'000, 0, {asked_before, 9'000, 1s}, 1s},
        pace_case{"stretch_of_nonsense", 9'000, 4'000'000'000, {asked_before, 9'000, 5h}, 1'000s}),
    [](const auto& shown) { return std::string(shown.param.name); });

}  // namespace
}  // namespace sallyport::core
