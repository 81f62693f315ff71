#include "tests/contract/kit/contract_test.hpp"

// Promise 2: a holder that no longer renews delays others by at most its lease.
namespace sallyport::contract {
namespace {

class DeadHolder : public contract_test {};

TEST_F(DeadHolder, DelaysAWaiterByItsLeaseAtMost) {
  mutex abandoned{open("dead"), "door", ending()};
  mutex wanted{open("alive"), "door", lasting()};

  const auto left_alone = abandoned.acquire();
  const auto began = lease_clock::now();
  const auto got = wanted.try_acquire_for(patience);

  ASSERT_TRUE(got);
  EXPECT_LT(lease_clock::now() - began, short_lease() + slack);
}

TEST_F(DeadHolder, LapsesAlsoWhenNobodyWaits) {
  const auto client = open("alive");
  mutex abandoned{open("dead"), "door", ending()};

  const auto left_alone = abandoned.acquire();
  wait_until(left_alone.deadline());

  EXPECT_TRUE(becomes_free(client, "door"));
  EXPECT_TRUE(lists(client, 0));
}

TEST_F(DeadHolder, LeavesItsPlaceToOneTryOfAnother) {
  mutex abandoned{open("dead"), "door", ending()};
  mutex wanted{open("alive"), "door", lasting()};

  const auto left_alone = abandoned.acquire();

  EXPECT_TRUE(eventually([&] { return wanted.try_acquire().has_value(); }));
  EXPECT_FALSE(left_alone.valid());
}

TEST_F(DeadHolder, AmongReadersDelaysAWriterByItsLeaseAtMost) {
  const auto client = open("alive");
  if (!claims().shared_locks) {
    EXPECT_EQ(error_of([&] { shared_mutex{client, "page"}; }), errc::not_supported);
    return;
  }
  shared_mutex abandoned{open("dead"), "page", ending()};
  shared_mutex wanted{client, "page", lasting()};

  const auto left_alone = abandoned.acquire_shared();
  const auto also_left_alone = abandoned.acquire_shared();
  const auto began = lease_clock::now();
  const auto got = wanted.try_acquire_for(patience);

  ASSERT_TRUE(got);
  EXPECT_LT(lease_clock::now() - began, short_lease() + slack);
}

TEST_F(DeadHolder, GivesItsPermitBack) {
  const auto client = open("alive");
  if (!claims().semaphores) {
    EXPECT_EQ(error_of([&] { semaphore{client, "pool", 2}; }), errc::not_supported);
    return;
  }
  semaphore abandoned{open("dead"), "pool", 2, ending()};
  semaphore wanted{client, "pool", 2, lasting()};
  const auto living = wanted.acquire();
  const auto left_alone = abandoned.acquire();

  ASSERT_FALSE(wanted.try_acquire());

  EXPECT_TRUE(wanted.try_acquire_for(patience));
  EXPECT_TRUE(living.valid());
}

TEST_F(DeadHolder, ALeaderThatIsSilentIsSucceeded) {
  const auto client = open("alive");
  if (!claims().elections) {
    EXPECT_EQ(error_of([&] { election{client, "leader"}; }), errc::not_supported);
    return;
  }
  election silent{open("dead"), "leader", ending()};
  election successor{client, "leader", lasting()};
  const auto left_alone = silent.campaign("the old one");

  const auto leads = successor.try_campaign_for("the new one", patience);

  ASSERT_TRUE(leads);
  EXPECT_EQ(successor.leader().value().value, "the new one");
}

}  // namespace
}  // namespace sallyport::contract
