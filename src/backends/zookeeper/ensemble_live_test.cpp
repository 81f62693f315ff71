#include "backends/zookeeper/test_live_ensemble.hpp"

#include <memory>
#include <optional>

// Three servers, some of which fail.
namespace sallyport::zookeeper_live {
namespace {

class Ensemble : public testing::Test {
 protected:
  // A server that has lost its leader goes on serving for long: 100 ticks, five seconds.
  Ensemble() : servers({.servers = 3, .sync_limit = 100, .detours = true}) {}

  zookeeper_ensemble servers;
  const std::string root = "/ensemble";
};

TEST(LeaderDeath, IsSurvivedByLocks) {
  zookeeper_ensemble servers{{.servers = 3}};
  const std::string root = "/ensemble";
  const auto one = open(to_all(servers, root), "one");
  const auto two = open(to_all(servers, root), "two");
  mutex mine{one, "door", lasting(20s)};
  mutex theirs{two, "door", lasting(20s)};
  auto held = mine.acquire();
  background waiter([&] { return theirs.try_acquire_for(2 * patience); });
  ASSERT_TRUE(eventually([&] {
    const auto seen = one.who("door");
    return seen && seen->waiters.size() == 1;
  }));
  const auto token = held.token();
  const auto dead = servers.leader();

  servers.kill(dead);

  const auto deadline = held.deadline();
  EXPECT_TRUE(eventually([&] { return held.deadline() > deadline; })) << "it is renewed again";
  EXPECT_TRUE(held.valid());
  EXPECT_EQ(held.release(), release_result::released);
  const auto next = waiter.get();
  ASSERT_TRUE(next);
  EXPECT_GT(next->token(), token) << "also in the next epoch";
  servers.start(dead);
  servers.wait_until_serving();
}

TEST_F(Ensemble, WithoutAMajorityTheStoreIsUnavailableAndTheHolderIsTold) {
  const auto one = open(to_all(servers, root), "one", 3s);
  mutex mine{one, "door", lasting(3s)};
  mutex other{one, "window", lasting(3s)};
  const auto held = mine.acquire();
  const auto first = servers.leader();
  servers.pause(first);
  servers.kill((first + 1) % 3);
  const auto began = lease_clock::now();

  const auto error = error_of([&] { (void)other.acquire(); }).code;

  EXPECT_TRUE(error == errc::unavailable || error == errc::outcome_unknown) << error.message();
  EXPECT_LT(lease_clock::now() - began, 3s + 1s + contract::slack);
  EXPECT_TRUE(becomes_lost(held, 3s + contract::slack));
  servers.resume(first);
  servers.start((first + 1) % 3);
  servers.wait_until_serving();
  EXPECT_TRUE(other.try_acquire_for(2 * patience));
}

// The server goes on answering pings and reads, as if nothing had happened.
TEST_F(Ensemble, AHolderWhoseServerHasLostTheOthersIsToldBeforeTheNextOneEnters) {
  const auto leader = servers.leader();
  const auto cut_off = (leader + 1) % 3;
  const std::string options = root + "?" + servers.tick_option();
  const auto one = open(servers.address(cut_off) + options, "one");
  const auto two = open(servers.address(leader) + options, "two");
  mutex mine{one, "door", lasting()};
  mutex theirs{two, "door", lasting()};
  const auto held = mine.acquire();
  background next([&] {
    const auto got = theirs.try_acquire_for(patience);
    return std::pair(lease_clock::now(), got.has_value());
  });
  ASSERT_TRUE(eventually([&] {
    const auto seen = two.who("door");
    return seen && seen->waiters.size() == 1;
  }));

  servers.between(cut_off, leader).set(flow::to_server, fault::hold());
  servers.between(cut_off, leader).set(flow::to_client, fault::hold());
  const auto [entered, got] = next.get();

  EXPECT_TRUE(got);
  EXPECT_FALSE(held.valid());
  EXPECT_LE(held.deadline(), entered);
  EXPECT_TRUE(becomes_lost(held));
  servers.between(cut_off, leader).heal();
}

TEST_F(Ensemble, AHolderThatKnowsOtherServersLeavesTheOneThatHasLostTheLeader) {
  const auto leader = servers.leader();
  std::optional<client> one;
  std::optional<std::size_t> cut_off;
  // The library chooses a server by chance.
  for (int tries = 0; tries < 30 && !cut_off; ++tries) {
    one.emplace(open(to_all(servers, root), "one"));
    mutex first{*one, "door", lasting(6s)};
    const auto held = first.acquire();
    for (std::size_t each = 0; each < servers.size(); ++each) {
      const bool here = servers.say(each, "cons").find("sid=0x") != std::string::npos;
      if (here && each != leader) cut_off = each;
    }
  }
  ASSERT_TRUE(cut_off);
  mutex mine{*one, "door", lasting(6s)};
  const auto held = mine.acquire();

  servers.between(*cut_off, leader).set(flow::to_server, fault::hold());
  servers.between(*cut_off, leader).set(flow::to_client, fault::hold());
  const auto deadline = held.deadline();

  EXPECT_TRUE(eventually([&] { return held.deadline() > deadline + 3s; }));
  EXPECT_TRUE(held.valid());
  servers.between(*cut_off, leader).heal();
}

}  // namespace
}  // namespace sallyport::zookeeper_live
