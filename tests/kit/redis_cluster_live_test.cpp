#include "tests/kit/redis_cluster.hpp"

#include <gtest/gtest.h>

namespace sallyport::kit {
namespace {

class RedisCluster : public testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = std::make_unique<redis_cluster>(); }
  static void TearDownTestSuite() { cluster_.reset(); }

  /// What a node answers to GET.
  static redis_reply get(std::size_t node, const std::string& key) {
    return cluster_->node(node).probe().command({"GET", key});
  }

  static std::unique_ptr<redis_cluster> cluster_;
};

std::unique_ptr<redis_cluster> RedisCluster::cluster_;

TEST_F(RedisCluster, KnowsTheSlotOfAKey) {
  redis_probe probe{cluster_->node(0).address()};
  for (const char* key : {"a", "foo{bar}baz", "{}x", "foo{{bar}}", "", "123456789"}) {
    EXPECT_EQ(slot_of(key), probe.expect({"CLUSTER", "KEYSLOT", key}).integer) << key;
  }
}

TEST_F(RedisCluster, SharesTheSlots) {
  EXPECT_EQ(cluster_->nodes(), 3U);
  EXPECT_EQ(cluster_->owner_of(0), 0U);
  EXPECT_EQ(cluster_->owner_of(8'000), 1U);
  EXPECT_EQ(cluster_->owner_of(16'383), 2U);
}

TEST_F(RedisCluster, MovesASlotWithItsKeys) {
  const std::uint16_t slot = slot_of("{moved}");
  const std::size_t from = cluster_->owner_of(slot);
  const std::size_t to = (from + 1) % 3;
  EXPECT_TRUE(cluster_->node(from).command({"SET", "{moved}", "b"}).is_ok());

  cluster_->move_slot(slot, to);

  EXPECT_EQ(cluster_->owner_of(slot), to);
  EXPECT_EQ(get(to, "{moved}").text, "b");
  EXPECT_TRUE(get(from, "{moved}").text.starts_with("MOVED ")) << get(from, "{moved}");
}

TEST_F(RedisCluster, LeavesASlotHalfMigrated) {
  const std::uint16_t slot = slot_of("{half}");
  const std::size_t from = cluster_->owner_of(slot);
  const std::size_t to = (from + 1) % 3;
  EXPECT_TRUE(cluster_->node(from).command({"SET", "{half}", "b"}).is_ok());

  cluster_->begin_migration(slot, to);
  EXPECT_EQ(get(from, "{half}").text, "b");
  EXPECT_TRUE(get(from, "{half}2").text.starts_with("ASK ")) << get(from, "{half}2");

  cluster_->abandon_migration(slot, to);
  EXPECT_TRUE(get(from, "{half}2").is_nil());

  cluster_->begin_migration(slot, to, redis_cluster::keys::move);
  EXPECT_TRUE(get(from, "{half}").text.starts_with("ASK ")) << get(from, "{half}");
  redis_probe asking{cluster_->node(to).address()};
  EXPECT_TRUE(asking.expect({"ASKING"}).is_ok());
  EXPECT_EQ(asking.expect({"GET", "{half}"}).text, "b");

  cluster_->abandon_migration(slot, to);
  EXPECT_EQ(get(from, "{half}").text, "b");

  cluster_->begin_migration(slot, to);
  cluster_->finish_migration(slot, to);
  EXPECT_EQ(get(to, "{half}").text, "b");
}

TEST(RedisClusterWithReplicas, MakesAReplicaMasterWhenItsMasterIsKilled) {
  redis_cluster cluster{{.masters = 3, .replicas = 1}};
  EXPECT_EQ(cluster.nodes(), 6U);

  cluster.node(0).kill();

  EXPECT_TRUE(eventually([&] { return cluster.replica(0, 0).probe().info("role") == "master"; }));
  cluster.wait_until_ok();
  EXPECT_EQ(cluster.owner_of(0), 3U);
}

}  // namespace
}  // namespace sallyport::kit
