#include "tests/kit/zookeeper_server.hpp"

#include <gtest/gtest.h>
#include <zookeeper/zookeeper.h>

#include <array>
#include <string>
#include <vector>

namespace sallyport::kit {
namespace {

/// ZooKeeper's own client.
class raw_client {
 public:
  explicit raw_client(const std::string& address, int session_ms = 20'000) {
    zoo_set_debug_level(static_cast<ZooLogLevel>(0));
    const std::string servers = address.substr(std::string("zookeeper://").size());
    handle_ = zookeeper_init(servers.c_str(), nullptr, session_ms, nullptr, nullptr, 0);
  }
  raw_client(const raw_client&) = delete;
  raw_client& operator=(const raw_client&) = delete;
  ~raw_client() { zookeeper_close(handle_); }

  /// Until the connection is up, calls may fail; so they are repeated.
  bool create(const std::string& path, int mode) {
    return eventually([&] {
      const int code = zoo_create2(handle_, path.c_str(), "", 0, &ZOO_OPEN_ACL_UNSAFE, mode,
                                   nullptr, 0, nullptr);
      return code == ZOK || code == ZNODEEXISTS;
    });
  }
  bool remove(const std::string& path) { return zoo_delete(handle_, path.c_str(), -1) == ZOK; }
  bool has(const std::string& path) {
    int code = ZCONNECTIONLOSS;
    static_cast<void>(eventually([&] {
      code = zoo_exists(handle_, path.c_str(), 0, nullptr);
      return code == ZOK || code == ZNONODE;
    }));
    return code == ZOK;
  }

 private:
  zhandle_t* handle_ = nullptr;
};

TEST(ZookeeperServer, KeepsWhatItWasToldOverAKill) {
  zookeeper_ensemble server;
  raw_client one(server.address());
  ASSERT_TRUE(one.create("/kept", ZOO_PERSISTENT));

  server.kill(0);
  EXPECT_EQ(server.say(0, "srvr"), "");
  server.start(0);
  server.wait_until_serving();

  EXPECT_EQ(server.leader(), 0U);
  EXPECT_TRUE(one.has("/kept"));
  EXPECT_FALSE(one.has("/never"));
}

TEST(ZookeeperServer, ShowsEphemeralNodesAndSweepsContainers) {
  zookeeper_ensemble server;
  raw_client two(server.address());
  ASSERT_TRUE(two.create("/root", ZOO_CONTAINER));
  {
    raw_client one(server.address());
    ASSERT_TRUE(one.create("/root/mine", ZOO_EPHEMERAL));
    ASSERT_TRUE(one.create("/other", ZOO_EPHEMERAL));

    EXPECT_EQ(server.ephemerals("/root"), std::vector<std::string>{"/root/mine"});
  }

  EXPECT_TRUE(eventually([&] { return server.ephemerals("/root").empty(); }));
  EXPECT_TRUE(eventually([&] { return !two.has("/root"); }));
}

TEST(ZookeeperServer, AnEnsembleGoesOnWithoutItsLeader) {
  zookeeper_ensemble ensemble{{.servers = 3, .sync_limit = 10}};
  const std::size_t first = ensemble.leader();

  ensemble.pause(first);
  ASSERT_TRUE(eventually([&] { return ensemble.leader() != first; }));
  raw_client one(ensemble.address());
  ASSERT_TRUE(one.create("/new", ZOO_PERSISTENT));
  ensemble.resume(first);
  ensemble.wait_until_serving();

  raw_client two(ensemble.address(first));
  EXPECT_TRUE(eventually([&] { return two.has("/new"); }));
}

TEST(ZookeeperServer, ServersDoNotMeet) {
  zookeeper_ensemble one;
  zookeeper_ensemble two;
  raw_client first(one.address());
  raw_client second(two.address());
  ASSERT_TRUE(first.create("/mine", ZOO_PERSISTENT));

  EXPECT_NE(one.address(), two.address());
  EXPECT_FALSE(second.has("/mine"));
}

}  // namespace
}  // namespace sallyport::kit
