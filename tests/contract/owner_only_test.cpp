#include "tests/contract/kit/contract_test.hpp"

// Promise 3: renew and release touch nobody else's lock, and a renewal never re-creates one.
namespace sallyport::contract {
namespace {

class OwnerOnly : public contract_test {};

TEST_F(OwnerOnly, ALateReleaseFreesNobodyElsesLock) {
  const auto two = open("two");
  mutex mine{open("one"), "door", ending()};
  mutex theirs{two, "door", lasting()};
  auto late = mine.acquire();
  auto next = theirs.try_acquire_for(patience);
  ASSERT_TRUE(next);

  EXPECT_EQ(late.release(), release_result::already_lost);

  EXPECT_TRUE(next->valid());
  EXPECT_EQ(holder_count(two, "door"), 1U);
  EXPECT_FALSE(mine.try_acquire());
  EXPECT_EQ(next->release(), release_result::released);
}

TEST_F(OwnerOnly, ALateDestructorFreesNobodyElsesLock) {
  const auto two = open("two");
  mutex mine{open("one"), "door", ending()};
  mutex theirs{two, "door", lasting()};
  std::optional<lease> late = mine.acquire();
  const auto next = theirs.try_acquire_for(patience);
  ASSERT_TRUE(next);

  late.reset();

  EXPECT_FALSE(mine.try_acquire());
  EXPECT_EQ(holder_count(two, "door"), 1U);
}

TEST_F(OwnerOnly, ALateReleaseOfAnEarlierTurnLeavesLaterTurnsOfTheSameClientAlone) {
  const auto client = open();
  mutex lock{client, "door", {.lease_length = 60s, .local_turns = 8}};
  auto first = lock.acquire();
  first.release();
  const auto second = lock.acquire();

  EXPECT_EQ(first.release(), release_result::released);

  EXPECT_TRUE(second.valid());
  EXPECT_EQ(holder_count(client, "door"), 1U);
}

TEST_F(OwnerOnly, ABrokenLockIsNotRecreatedByRenewals) {
  const auto two = open("two");
  const auto length = 2 * short_lease();
  mutex mine{open("one"), "door", {.lease_length = length, .local_turns = 1}};
  const auto broken = mine.acquire();

  two.break_lock("door", observed_token(two, "door"), break_style::at_once);

  EXPECT_TRUE(becomes_lost(broken));
  EXPECT_FALSE(two.who("door"));
  // Longer than a renewal interval: the watchdog would have renewed by now.
  wait_until(lease_clock::now() + length / 2);
  EXPECT_FALSE(two.who("door"));
}

TEST_F(OwnerOnly, ABrokenHoldersRenewalsDoNotTouchTheNextHolder) {
  const auto two = open("two");
  const auto length = 2 * short_lease();
  mutex mine{open("one"), "door", {.lease_length = length, .local_turns = 1}};
  mutex theirs{two, "door", lasting()};
  auto broken = mine.acquire();
  two.break_lock("door", observed_token(two, "door"), break_style::at_once);
  const auto next = theirs.try_acquire_for(patience);
  ASSERT_TRUE(next);

  wait_until(lease_clock::now() + length / 2);

  EXPECT_EQ(broken.release(), release_result::already_lost);
  EXPECT_TRUE(next->valid());
  const auto seen = two.who("door");
  ASSERT_TRUE(seen);
  ASSERT_EQ(seen->holders.size(), 1U);
  EXPECT_EQ(seen->holders[0].label, "two");
}

TEST_F(OwnerOnly, ALapsedLockStaysFree) {
  const auto client = open();
  mutex lock{client, "door", ending()};
  const auto lapsed = lock.acquire();

  ASSERT_TRUE(becomes_lost(lapsed));

  ASSERT_TRUE(becomes_free(client, "door"));
  wait_until(lease_clock::now() + short_lease());
  EXPECT_FALSE(client.who("door"));
}

TEST_F(OwnerOnly, ALostReaderDoesNotTakeOtherReadersAlong) {
  const auto client = open("alive");
  if (!claims().shared_locks) {
    EXPECT_EQ(error_of([&] { shared_mutex{client, "page"}; }), errc::not_supported);
    return;
  }
  shared_mutex ends{open("ends"), "page", ending()};
  shared_mutex lasts{client, "page", lasting()};
  auto lapsing = ends.acquire_shared();
  const auto staying = lasts.acquire_shared();

  ASSERT_TRUE(becomes_lost(lapsing));
  EXPECT_EQ(lapsing.release(), release_result::already_lost);

  EXPECT_TRUE(staying.valid());
  EXPECT_FALSE(ends.try_acquire());
}

}  // namespace
}  // namespace sallyport::contract
