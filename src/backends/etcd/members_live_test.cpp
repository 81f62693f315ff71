#include "backends/etcd/test_live_cluster.hpp"

// A cluster of three, of which members are killed and stand still. A majority alive means that locks
// can be taken and given back; without one the store is `unavailable`, never "held".
namespace sallyport::etcd_live {
namespace {

class EtcdMembers : public testing::Test {
 protected:
  EtcdMembers() { cluster_.wait_until_healthy(); }

  /// Waits until the lease was renewed after this moment, and for longer than it had left.
  static bool outlives(const lease& held) {
    const auto deadline = held.deadline();
    return eventually([&] { return lease_clock::now() > deadline || !held.valid(); }) &&
           held.valid();
  }

  etcd_cluster cluster_{{.members = 3}};
};

TEST_F(EtcdMembers, ADeadLeaderCostsNobodyItsLock) {
  mutex mine{open(cluster_.address()), "door", lasting(6s)};
  mutex theirs{open(cluster_.address()), "door", lasting(6s)};
  auto held = mine.acquire();
  waiter next{theirs};
  ASSERT_TRUE(waiters_become(open(cluster_.address()), "door", 1));
  const std::size_t leader = cluster_.leader();

  cluster_.kill(leader);

  EXPECT_TRUE(outlives(held));
  EXPECT_FALSE(next.done());
  const auto token = held.token();
  EXPECT_EQ(held.release(), release_result::released);
  const auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_GT(got->token(), token);
  cluster_.start(leader);
}

TEST_F(EtcdMembers, EachOfThemMayStandStillForAWhile) {
  const client store = open(cluster_.address());
  mutex lock{store, "door", lasting(6s)};
  fencing_token last;
  for (std::size_t member = 0; member < cluster_.size(); ++member) {
    SCOPED_TRACE(member);
    cluster_.pause(member);
    const auto held = lock.try_acquire_for(patience);
    ASSERT_TRUE(held);
    EXPECT_GT(held->token(), last);
    last = held->token();
    if (member == 0) {
      EXPECT_TRUE(outlives(*held)) << "renewals find another member";
    }
    cluster_.resume(member);
    cluster_.wait_until_healthy();
  }
}

TEST_F(EtcdMembers, AMemberThatWasKilledComesBackWithWhatItKnew) {
  const client store = open(cluster_.address());
  mutex lock{store, "door", lasting()};
  const auto held = lock.acquire();
  for (std::size_t member = 0; member < cluster_.size(); ++member) {
    cluster_.kill(member);
    cluster_.start(member);
    cluster_.wait_until_healthy();
  }

  mutex other{open(cluster_.address()), "door", lasting()};
  EXPECT_FALSE(other.try_acquire());
  EXPECT_TRUE(held.valid());
}

TEST_F(EtcdMembers, WithoutAMajorityTheStoreIsUnavailableInTimeAndLeasesAreLostInTime) {
  const client store = open(cluster_.address());
  mutex lock{store, "door", lasting(3s)};
  mutex other{store, "window", lasting()};
  const auto held = lock.acquire();
  const auto token = held.token();

  cluster_.kill(1);
  cluster_.kill(2);
  const auto deadline = held.deadline();
  EXPECT_TRUE(becomes_lost(held));
  EXPECT_LT(lease_clock::now(), deadline + 3s + slack);
  std::error_code last;
  EXPECT_TRUE(eventually([&] {
    const auto began = lease_clock::now();
    last = error_of([&] { EXPECT_FALSE(other.try_acquire()); }).code;
    EXPECT_LT(lease_clock::now() - began, 1s + slack);
    EXPECT_TRUE(last == errc::unavailable || last == errc::outcome_unknown) << last.message();
    return last == errc::unavailable;
  })) << last.message();
  cluster_.start(1);
  cluster_.start(2);
  cluster_.wait_until_healthy();

  const auto again = lock.try_acquire_for(patience);
  ASSERT_TRUE(again);
  EXPECT_GT(again->token(), token);
}

}  // namespace
}  // namespace sallyport::etcd_live
