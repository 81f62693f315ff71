#include "tests/kit/etcd_server.hpp"

#include <gtest/gtest.h>

#include <string>

namespace sallyport::kit {
namespace {

TEST(EtcdServer, KeepsWhatItWasToldOverAKill) {
  etcd_cluster server{{.on_disk = true}};
  server.ctl({"put", "a/key", "value"});
  server.ctl({"lease", "grant", "60"});

  server.kill(0);
  EXPECT_THROW(server.ctl({"get", "a/key"}), kit_error);
  server.start(0);
  server.wait_until_healthy();

  EXPECT_EQ(server.ctl({"get", "a/key", "--print-value-only"}), "value\n");
  EXPECT_EQ(server.keys(), std::vector<std::string>{"a/key"});
  EXPECT_TRUE(server.keys("b/").empty());
  EXPECT_EQ(server.leases(), 1U);
}

TEST(EtcdServer, AClusterGoesOnWithoutItsLeader) {
  etcd_cluster cluster{{.members = 3}};
  const std::size_t first = cluster.leader();

  cluster.pause(first);
  ASSERT_TRUE(eventually([&] { return cluster.leader() != first; }));
  cluster.ctl({"put", "key", "value"});
  cluster.resume(first);
  cluster.wait_until_healthy();

  EXPECT_EQ(cluster.ctl({"get", "key", "--print-value-only"}, first), "value\n");
}

TEST(EtcdServer, AMemberThatIsCutOffFromTheOthersIsStillReachedByItsClients) {
  etcd_cluster cluster{{.members = 3, .detours = true}};
  const std::size_t old = cluster.leader();
  cluster.ctl({"put", "key", "before"});

  cluster.cut_off(old);
  const std::size_t other = (old + 1) % 3;
  ASSERT_TRUE(eventually([&] {
    cluster.ctl({"put", "key", "after"}, other);
    return true;
  }));
  EXPECT_EQ(cluster.ctl({"get", "key", "--print-value-only", "--consistency=s"}, old), "before\n");
  cluster.rejoin(old);

  EXPECT_TRUE(eventually([&] {
    return cluster.ctl({"get", "key", "--print-value-only", "--consistency=s"}, old) == "after\n";
  }));
}

TEST(EtcdServer, ServersDoNotMeet) {
  etcd_cluster one;
  etcd_cluster two;
  one.ctl({"put", "key", "value"});

  EXPECT_NE(one.address(), two.address());
  EXPECT_TRUE(two.keys().empty());
}

}  // namespace
}  // namespace sallyport::kit
