#include "cli/lease_policy.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace sallyport::cli {
namespace {

using namespace std::chrono_literals;
using step = lease_policy::step;

constexpr lease_clock::time_point start{1000s};

TEST(LeasePolicy, AsksAndThenKillsBeforeTheDeadline) {
  const lease_policy policy{30s, 5s, false};
  const auto deadline = start + 30s;

  EXPECT_EQ(policy.decide(lease_state::held, deadline, start).now, step::none);
  EXPECT_EQ(policy.decide(lease_state::suspect, deadline, start + 24s).now, step::none);
  EXPECT_EQ(policy.decide(lease_state::suspect, deadline, start + 25s).now, step::terminate);
  EXPECT_EQ(policy.decide(lease_state::suspect, deadline, start + 29700ms).now, step::terminate);
  EXPECT_EQ(policy.decide(lease_state::suspect, deadline, start + 29750ms).now, step::kill);
  EXPECT_EQ(policy.decide(lease_state::suspect, deadline, start + 31s).now, step::kill);
}

TEST(LeasePolicy, WaitsForTheClaimOfALeaseThatWasHandedOver) {
  const lease_policy policy{30s, 5s, false};
  const auto provisional = start + 2s;

  const auto decided = policy.decide(lease_state::held, provisional, start);

  EXPECT_EQ(decided.now, step::none);
  EXPECT_LE(decided.ask_again, start + 400ms);
  EXPECT_EQ(policy.decide(lease_state::held, provisional, start + 1800ms).now, step::kill);
}

TEST(LeasePolicy, AsksAtAFixedLeasesEndWhateverItsState) {
  const lease_policy policy{30s, 5s, true};

  EXPECT_EQ(policy.decide(lease_state::held, start + 30s, start + 26s).now, step::terminate);
}

TEST(LeasePolicy, KillsAtOnceWhenTheStoreSaysLost) {
  const lease_policy policy{30s, 5s, false};

  EXPECT_EQ(policy.decide(lease_state::lost, start + 30s, start + 1s).now, step::kill);
}

TEST(LeasePolicy, AsksToBeAskedBeforeAnythingFallsDue) {
  const lease_policy policy{30s, 5s, false};
  const auto deadline = start + 30s;

  EXPECT_EQ(policy.decide(lease_state::held, deadline, start).ask_again, start + 2500ms);
  EXPECT_EQ(policy.decide(lease_state::held, deadline, start + 23s).ask_again, start + 25s);
  EXPECT_EQ(policy.decide(lease_state::suspect, deadline, start + 28s).ask_again,
            deadline - policy.kill_ahead());
}

TEST(LeasePolicy, CutsAGraceThatEveryRenewalWouldMiss) {
  const lease_policy renewed{30s, 25s, false};
  const lease_policy fixed{30s, 25s, true};

  EXPECT_EQ(renewed.grace(), 9s);
  EXPECT_EQ(fixed.grace(), 25s);
}

TEST(LeasePolicy, LeavesTimeToDieWithoutGrace) {
  const lease_policy policy{1s, 0s, false};

  EXPECT_EQ(policy.kill_ahead(), 10ms);
  EXPECT_EQ(policy.decide(lease_state::suspect, start + 1s, start + 991ms).now, step::kill);
}

TEST(LeasePolicy, LetsTheGuardComeAfterTheWrapperAndBeforeTheDeadline) {
  const lease_policy policy{30s, 5s, false};
  const auto deadline = start + 30s;

  EXPECT_GT(policy.guard_kills_at(deadline), deadline - policy.kill_ahead());
  EXPECT_LT(policy.guard_kills_at(deadline), deadline);
}

}  // namespace
}  // namespace sallyport::cli
