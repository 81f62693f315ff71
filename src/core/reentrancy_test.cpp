#include "core/reentrancy.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace sallyport::core {
namespace {

using entry = reentrancy::entry;
using exit = reentrancy::exit;

constexpr std::uint64_t owner = 7;
constexpr std::uint64_t stranger = 8;

reentrancy entered_once() {
  reentrancy counter;
  counter.entered(owner);
  return counter;
}

TEST(Reentrancy, SendsTheFirstEntryToTheStore) {
  reentrancy counter;

  EXPECT_EQ(counter.enter(owner, true), entry::acquire);
  EXPECT_EQ(counter.count(), 0U);
}

TEST(Reentrancy, DoesNotTakeOwnerZeroForTheOwnerOfAFreeLock) {
  reentrancy counter;

  EXPECT_EQ(counter.enter(0, true), entry::acquire);
}

TEST(Reentrancy, RemembersWhoEntered) {
  const reentrancy counter = entered_once();

  EXPECT_EQ(counter.owner(), owner);
  EXPECT_EQ(counter.count(), 1U);
}

TEST(Reentrancy, LetsTheOwnerInAgain) {
  reentrancy counter = entered_once();

  EXPECT_EQ(counter.enter(owner, true), entry::reentered);
  EXPECT_EQ(counter.count(), 2U);
}

TEST(Reentrancy, SendsAStrangerToTheStore) {
  reentrancy counter = entered_once();

  EXPECT_EQ(counter.enter(stranger, true), entry::acquire);
  EXPECT_EQ(counter.owner(), owner);
  EXPECT_EQ(counter.count(), 1U);
}

TEST(Reentrancy, SendsAStrangerToTheStoreWhateverTheLeaseIs) {
  reentrancy counter = entered_once();

  EXPECT_EQ(counter.enter(stranger, false), entry::acquire);
}

TEST(Reentrancy, RefusesTheOwnerOfALostLease) {
  reentrancy counter = entered_once();

  EXPECT_EQ(counter.enter(owner, false), entry::lost);
  EXPECT_EQ(counter.count(), 1U);
}

TEST(Reentrancy, ReleasesOnlyWithTheLastExit) {
  reentrancy counter = entered_once();
  ASSERT_EQ(counter.enter(owner, true), entry::reentered);
  ASSERT_EQ(counter.enter(owner, true), entry::reentered);

  EXPECT_EQ(counter.leave(), exit::still_in);
  EXPECT_EQ(counter.leave(), exit::still_in);
  EXPECT_EQ(counter.leave(), exit::release);
  EXPECT_EQ(counter.count(), 0U);
}

TEST(Reentrancy, CountsTheExitsOfALostLeaseToo) {
  reentrancy counter = entered_once();
  ASSERT_EQ(counter.enter(owner, true), entry::reentered);
  ASSERT_EQ(counter.enter(owner, false), entry::lost);

  EXPECT_EQ(counter.leave(), exit::still_in);
  EXPECT_EQ(counter.leave(), exit::release);
}

TEST(Reentrancy, ForgetsAnOwnerThatLeft) {
  reentrancy counter = entered_once();
  ASSERT_EQ(counter.leave(), exit::release);

  EXPECT_EQ(counter.enter(owner, true), entry::acquire);
}

TEST(Reentrancy, StartsAnewWithTheNextOwner) {
  reentrancy counter = entered_once();
  ASSERT_EQ(counter.leave(), exit::release);

  counter.entered(stranger);

  EXPECT_EQ(counter.enter(stranger, true), entry::reentered);
  EXPECT_EQ(counter.enter(owner, true), entry::acquire);
  EXPECT_EQ(counter.count(), 2U);
}

TEST(Reentrancy, RefusesToGoDeeperThanItsBound) {
  reentrancy counter{3};
  counter.entered(owner);
  ASSERT_EQ(counter.enter(owner, true), entry::reentered);
  ASSERT_EQ(counter.enter(owner, true), entry::reentered);

  EXPECT_EQ(counter.enter(owner, true), entry::too_deep);
  EXPECT_EQ(counter.count(), 3U);
}

TEST(Reentrancy, SaysLostRatherThanTooDeep) {
  reentrancy counter{1};
  counter.entered(owner);

  EXPECT_EQ(counter.enter(owner, false), entry::lost);
}

TEST(Reentrancy, CanBeReenteredAfterOneExitFromTheBound) {
  reentrancy counter{2};
  counter.entered(owner);
  ASSERT_EQ(counter.enter(owner, true), entry::reentered);
  ASSERT_EQ(counter.leave(), exit::still_in);

  EXPECT_EQ(counter.enter(owner, true), entry::reentered);
}

TEST(ReentrancyDeathTest, RefusesAnExitWithoutAnEntry) {
  reentrancy counter;

  EXPECT_DEATH(static_cast<void>(counter.leave()), "broken invariant");
}

}  // namespace
}  // namespace sallyport::core
