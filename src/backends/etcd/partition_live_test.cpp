#include "backends/etcd/test_live_cluster.hpp"

#include <optional>
#include <utility>

// Members that are cut off from each other, while their clients still reach them. One of them alone
// answers keep-alives for a while as if nothing had happened; what counts is what a majority knows.
namespace sallyport::etcd_live {
namespace {

class EtcdPartition : public testing::Test {
 protected:
  static constexpr auto lease_length = 3s;

  struct entry {
    std::optional<lease> got;
    lease_clock::time_point when;
  };

  /// A holder that knows one member only, which is cut off; and one that waits at another member.
  void the_holder_is_told_before_the_next_one_enters(std::size_t cut_off, std::size_t other) {
    const client one = open(cluster_.address(cut_off));
    const client two = open(cluster_.address(other));
    mutex mine{one, "door", lasting(lease_length)};
    mutex theirs{two, "door", lasting(lease_length)};
    auto held = mine.acquire();
    const auto token = held.token();
    background<entry> next([&] {
      auto got = theirs.try_acquire_for(2 * patience);
      return entry{std::move(got), lease_clock::now()};
    });
    ASSERT_TRUE(waiters_become(two, "door", 1));

    cluster_.cut_off(cut_off);
    const auto cut = lease_clock::now();

    EXPECT_TRUE(becomes_lost(held));
    EXPECT_LE(held.deadline(), cut + lease_length)
        << "a keep-alive was believed that no majority knew of";
    const std::error_code alone = error_of([&] { EXPECT_FALSE(mine.try_acquire()); }).code;
    EXPECT_TRUE(alone == errc::unavailable || alone == errc::outcome_unknown) << alone.message();
    entry entered = next.get();
    ASSERT_TRUE(entered.got);
    EXPECT_LT(held.deadline(), entered.when);
    EXPECT_GT(entered.got->token(), token);
    EXPECT_EQ(held.release(), release_result::already_lost);
    EXPECT_TRUE(entered.got->valid());
    EXPECT_EQ(entered.got->release(), release_result::released);

    cluster_.rejoin(cut_off);
    const auto again = mine.try_acquire_for(patience);
    ASSERT_TRUE(again);
    EXPECT_GT(again->token(), entered.got->token());
  }

  // A leader without followers believes in itself for one to two of these times: for a renewal at
  // least. A member that comes back deposes nobody.
  etcd_cluster cluster_{
      {.members = 3, .election = 1200ms, .detours = true, .flags = {"--pre-vote"}}};
};

TEST_F(EtcdPartition, AHolderAtALeaderThatHasLostItsFollowersIsToldBeforeTheNextOneEnters) {
  const std::size_t leader = cluster_.leader();

  the_holder_is_told_before_the_next_one_enters(leader, (leader + 1) % 3);

  EXPECT_TRUE(nothing_is_left(cluster_));
}

TEST_F(EtcdPartition, AHolderAtAFollowerThatHasLostItsLeaderIsToldBeforeTheNextOneEnters) {
  const std::size_t leader = cluster_.leader();

  the_holder_is_told_before_the_next_one_enters((leader + 1) % 3, leader);

  EXPECT_TRUE(nothing_is_left(cluster_));
}

TEST_F(EtcdPartition, AHolderThatKnowsOtherMembersLeavesTheOneThatIsCutOff) {
  const std::size_t leader = cluster_.leader();
  std::optional<client> one = open(cluster_.address(leader) +
                                   ",127.0.0.1:" + std::to_string(cluster_.port((leader + 1) % 3)));
  mutex mine{*one, "door", lasting(6s)};
  auto held = mine.acquire();

  cluster_.cut_off(leader);
  const auto cut = lease_clock::now();

  EXPECT_TRUE(eventually([&] { return held.deadline() > cut + 6s; })) << "it is renewed elsewhere";
  EXPECT_TRUE(held.valid());
  EXPECT_EQ(held.release(), release_result::released);
  cluster_.rejoin(leader);
  one.reset();
  EXPECT_TRUE(nothing_is_left(cluster_));
}

TEST_F(EtcdPartition, WithoutTheLengthOfTheHoldersLeaseNothingIsBroken) {
  const std::size_t leader = cluster_.leader();
  const std::size_t follower = (leader + 1) % 3;
  const client at_leader = open(cluster_.address(leader));
  const client at_follower = open(cluster_.address(follower));
  mutex mine{at_leader, "door", lasting()};
  auto held = mine.acquire();

  // A follower asks the leader for the time of a lease on a connection that it opens. What makes a
  // majority has another way: connections that the leader opens.
  fault_proxy& way = cluster_.between(follower, leader);
  way.refuse_connections();
  way.close_all();
  const live::told failed =
      error_of([&] { at_follower.break_lock("door", held.token(), break_style::safe); });
  const live::told unseen = error_of([&] { (void)at_follower.who("door"); });
  way.accept_connections();

  EXPECT_EQ(failed.code, errc::unavailable) << failed.text;
  EXPECT_TRUE(failed.says("nothing was broken")) << failed.text;
  EXPECT_EQ(unseen.code, errc::unavailable) << "a time that is not known is not shown as none";
  const auto still = at_leader.who("door");
  ASSERT_TRUE(still);
  EXPECT_EQ(still->closed_for, 0ms);
  ASSERT_EQ(still->holders.size(), 1U);
  EXPECT_EQ(still->holders.at(0).token, held.token());
  EXPECT_EQ(held.release(), release_result::released);
}

}  // namespace
}  // namespace sallyport::etcd_live
