#include "tests/contract/kit/contract_test.hpp"

#include <algorithm>

namespace sallyport::contract {
namespace {

class Capabilities : public contract_test {};

TEST_F(Capabilities, AreThoseThatTheStoreIsKnownFor) {
  const auto client = open();
  const auto& says = client.capabilities();

  EXPECT_EQ(says.fencing, claims().fencing);
  EXPECT_EQ(says.fifo, claims().fifo);
  EXPECT_EQ(says.direct_handoff, claims().direct_handoff);
  EXPECT_EQ(says.shared_locks, claims().shared_locks);
  EXPECT_EQ(says.semaphores, claims().semaphores);
  EXPECT_EQ(says.elections, claims().elections);
  EXPECT_EQ(says.lists, claims().lists);
  EXPECT_EQ(says.notices_death, claims().notices_death);
  EXPECT_EQ(says.tells_kind, claims().tells_kind);
  EXPECT_EQ(says.survives_store_restart, claims().survives_store_restart);
  EXPECT_EQ(says.min_lease, claims().min_lease);
  EXPECT_EQ(says.max_lease, claims().max_lease);
  EXPECT_EQ(says.lease_granularity, claims().lease_granularity);
  EXPECT_EQ(says.expiry_granularity, claims().expiry_granularity);
  EXPECT_GE(store().short_lease, says.min_lease);
}

TEST_F(Capabilities, ClientsOfOneAddressMeetInOneTokenSpace) {
  ASSERT_TRUE(store().clients_share) << "the suite needs an address that several clients share";
  const auto one = open("one");
  const auto two = open("two");

  mutex mine{one, "shared", lasting()};
  const auto held = mine.acquire();

  EXPECT_EQ(one.capabilities().store_id, two.capabilities().store_id);
  EXPECT_EQ(holder_count(two, "shared"), 1U);
}

TEST_F(Capabilities, ALeaseSaysWhichTokenSpaceItsTokenIsOf) {
  if (!claims().fencing) return;
  const auto other = store().make();
  const auto lock_of = [](const client& store) {
    mutex lock{store, "same name", lasting()};
    return lock.acquire().fence_pass().lock;
  };

  const std::string here = lock_of(open("one"));

  EXPECT_TRUE(here.ends_with("|same name")) << here;
  EXPECT_FALSE(here.starts_with("|")) << here;
  EXPECT_EQ(lock_of(open("two")), here);
  EXPECT_NE(lock_of(client::open(other->address())), here);
}

TEST_F(Capabilities, FreshStoresDoNotMeet) {
  const auto other = store().make();
  const auto here = open();
  const auto there = client::open(other->address());

  mutex mine{here, "same name", lasting()};
  const auto held = mine.acquire();
  mutex theirs{there, "same name", lasting()};

  EXPECT_TRUE(theirs.try_acquire());
}

TEST_F(Capabilities, ALeaseIsAsLongAsAskedForOrRoundedUp) {
  const auto client = open();
  const auto step = std::max(claims().lease_granularity, 1ms);

  mutex lock{client, "length", {.lease_length = short_lease()}};
  const auto before = lease_clock::now();
  const auto held = lock.acquire();

  EXPECT_GE(held.length(), short_lease());
  EXPECT_LT(held.length(), short_lease() + step);
  EXPECT_LE(held.deadline() - before, held.length() + patience);
  EXPECT_GT(held.deadline(), before);
}

TEST_F(Capabilities, LeasesThatTheStoreCannotKeepAreRefusedBeforeTheyAreAskedFor) {
  const auto client = open();

  const auto make = [&](std::chrono::milliseconds length) {
    return error_of([&] { mutex{client, "length", {.lease_length = length}}; });
  };

  EXPECT_EQ(make(claims().min_lease - 1ms), errc::bad_option);
  EXPECT_EQ(make(claims().max_lease + 1ms), errc::bad_option);
  EXPECT_EQ(make(0ms), errc::bad_option);
  EXPECT_EQ(make(-5ms), errc::bad_option);
  EXPECT_EQ(make(claims().min_lease), std::error_code{});
  EXPECT_EQ(make(claims().max_lease), std::error_code{});
}

TEST_F(Capabilities, KindsThatAreNotClaimedAreRefused) {
  const auto client = open();

  const auto shared_lock = error_of([&] { shared_mutex{client, "shared"}; });
  const auto permits = error_of([&] { semaphore{client, "permits", 2}; });
  const auto candidates = error_of([&] { election{client, "candidates"}; });

  const auto expected = [](bool claimed) {
    return claimed ? std::error_code{} : make_error_code(errc::not_supported);
  };
  EXPECT_EQ(shared_lock, expected(claims().shared_locks));
  EXPECT_EQ(permits, expected(claims().semaphores));
  EXPECT_EQ(candidates, expected(claims().elections));
}

}  // namespace
}  // namespace sallyport::contract
