#include "backends/redis/test_live_topology.hpp"
#include "tests/kit/redis_cluster.hpp"
#include "tests/kit/redis_leftovers.hpp"

#include <algorithm>
#include <list>
#include <set>

namespace sallyport::backends::redis {
namespace {

using kit::redis_cluster;

/// One cluster for all tests: three masters with a replica each.
class Cluster : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ = std::make_unique<redis_cluster>(kit::redis_cluster_options{.replicas = 1});
  }
  static void TearDownTestSuite() { cluster_.reset(); }

  static std::string address() {
    return "redis+cluster://" + places({cluster_->node(0).port(), cluster_->node(1).port()});
  }
  static std::uint16_t slot(const std::string& name) { return kit::slot_of(name); }
  static std::size_t somebody_else(std::size_t node) { return (node + 1) % cluster_->masters(); }

  static void nothing_is_left() {
    std::vector<std::string> left;
    EXPECT_TRUE(kit::eventually([&] {
      left.clear();
      for (std::size_t i = 0; i < cluster_->nodes(); ++i) {
        if (!cluster_->node(i).running()) continue;
        auto probe = cluster_->node(i).probe();
        if (probe.info("role") != "master") continue;
        const auto here = kit::leftovers(probe);
        left.insert(left.end(), here.begin(), here.end());
      }
      return left.empty();
    })) << left.front();
  }

  static std::unique_ptr<redis_cluster> cluster_;
};

std::unique_ptr<redis_cluster> Cluster::cluster_;

TEST_F(Cluster, KeepsNamesOfAllSlotsAndShapes) {
  const client store = open_as(address(), "first");
  const client other = open_as(address(), "second");
  std::vector<std::string> names{"{",      "}",  "a{b",   "a{}b",    "{tag}x", "a}b{",
                                 "{}",     "}{", "{{x}}", "{a}{b}",  "x{}{y}", "{tag}y",
                                 "a{b}c{", "{b", "b}",    "{}{tag}z"};
  for (int i = 0; i < 200; ++i) names.push_back("job-" + std::to_string(i));
  std::list<mutex> locks;
  std::vector<lease> held;

  std::set<std::size_t> servers;
  for (const std::string& each : names) {
    auto got = locks.emplace_back(store, each, through_the_store(20s)).try_acquire();
    ASSERT_TRUE(got) << each;
    held.push_back(std::move(*got));
    mutex same{other, each, through_the_store(20s)};
    EXPECT_FALSE(same.try_acquire()) << each;
    servers.insert(cluster_->owner_of(slot(each)));
  }

  EXPECT_EQ(servers.size(), 3U);
  std::vector<std::string> listed;
  for (const auto& each : other.list({}, {}, 1'000)) listed.push_back(each.name);
  std::ranges::sort(names);
  EXPECT_EQ(listed, names);
  for (lease& each : held) EXPECT_EQ(each.release(), release_result::released);
  nothing_is_left();
}

TEST_F(Cluster, HasOneNameForLocksOnAllNodes) {
  std::set<std::string> stores;
  for (const std::string options : {"", "?prefix=app:", "?prefix=a%7Bp%7Dp:"}) {
    std::set<std::string> of_these;
    for (int i = 0; i < 12; ++i) {
      // Each with a client of its own: what the first has learnt does not help the next.
      const std::string name = "named " + std::to_string(i);
      mutex door{open_as(address() + options, "one"), name, through_the_store()};
      const auto held = door.acquire();
      const std::string lock = held.fence_pass().lock;
      of_these.insert(lock.substr(0, lock.find('|')));
    }
    ASSERT_EQ(of_these.size(), 1U) << options;
    stores.insert(*of_these.begin());
  }

  EXPECT_EQ(stores.size(), 3U) << "each prefix is a store";
  for (const std::string& each : stores) EXPECT_EQ(each.size(), std::string("redis:").size() + 32);
  nothing_is_left();
}

TEST_F(Cluster, TheNameIsAskedForAgainAlsoWhenAnotherNodeWasConnectedToAgain) {
  std::string name_key;
  std::size_t named = 0;
  const client store = open_as(address() + "?prefix=again:", "one");
  const auto store_of = [&](const std::string& name) {
    mutex door{store, name, through_the_store()};
    const std::string lock = door.acquire().fence_pass().lock;
    return lock.substr(0, lock.find('|'));
  };
  static_cast<void>(store_of("first"));
  for (std::size_t i = 0; i < cluster_->masters(); ++i) {
    const auto found = cluster_->node(i).command({"KEYS", "*again:*\x01store*"}).items;
    if (found.empty()) continue;
    name_key = found.front().text;
    named = i;
  }
  ASSERT_FALSE(name_key.empty());
  const std::size_t other = somebody_else(named);
  std::string lock;
  for (int i = 0; i < 1'000 && lock.empty(); ++i) {
    const std::string name = "lock-" + std::to_string(i);
    if (cluster_->owner_of(slot("again:" + name)) == other) lock = name;
  }
  const std::string before = store_of(lock);

  cluster_->node(named).command({"DEL", name_key});
  cluster_->node(other).command({"CLIENT", "KILL", "TYPE", "normal"});

  EXPECT_TRUE(kit::eventually([&] { return store_of(lock) != before; }));
  nothing_is_left();
}

TEST_F(Cluster, HandsOverInEverySlot) {
  const client store = open_as(address(), "holder");
  for (const char* name : {"{", "a{}b", "{tag}x", "plain", "a}b{", "other"}) {
    mutex door{store, name, through_the_store()};
    auto held = door.acquire();
    waiter next{address(), name};
    ASSERT_TRUE(queue_has(store, name, 1)) << name;

    held.release();

    EXPECT_TRUE(next.comes_in(900ms)) << name << " lives on heartbeats";
    EXPECT_GT(next.token(), held.token());
  }
  nothing_is_left();
}

TEST_F(Cluster, FollowsASlotThatMoves) {
  const std::string name = "moved";
  const std::size_t from = cluster_->owner_of(slot(name));
  const client store = open_as(address(), "holder");
  mutex door{store, name, through_the_store(1s)};
  auto held = door.acquire();
  waiter next{address(), name};
  ASSERT_TRUE(queue_has(store, name, 1));

  cluster_->move_slot(slot(name), somebody_else(from));

  // Renewed for some leases where the slot is now.
  const auto until = lease_clock::now() + 2s;
  while (lease_clock::now() < until) {
    ASSERT_TRUE(held.valid());
    ASSERT_FALSE(next.is_in());
    std::this_thread::sleep_for(20ms);
  }
  held.release();
  // Its channel is open at the new owner: it need not wait for its heartbeat.
  ASSERT_TRUE(next.comes_in(900ms));
  EXPECT_GT(next.token(), held.token());
  next.leave();
  nothing_is_left();
  cluster_->move_slot(slot(name), from);
}

TEST_F(Cluster, OpensChannelsAgainWhereASlotHasGone) {
  const std::string name = "watched";
  const std::size_t from = cluster_->owner_of(slot(name));
  const client store = open_as(address(), "leader");
  const client other = open_as(address(), "observer");
  election post{store, name, through_the_store(20s)};
  election seen{other, name};
  auto leading = post.campaign("one");
  std::atomic<int> version{0};
  const auto watching = seen.observe([&](const std::optional<leader_info>& leader) {
    if (leader && leader->value == "one") version = std::max(version.load(), 1);
    if (leader && leader->value == "two") version = 2;
  });
  ASSERT_TRUE(kit::eventually([&] { return version == 1; }));

  cluster_->move_slot(slot(name), somebody_else(from));
  const std::string channel = name + "\x01" + "changes";
  ASSERT_TRUE(kit::eventually([&] {
    auto probe = cluster_->node(somebody_else(from)).probe();
    const auto open = probe.expect({"PUBSUB", "SHARDCHANNELS"}).texts();
    return std::ranges::any_of(open, [&](const auto& each) { return each.starts_with(channel); });
  })) << "nobody listens at the new owner";
  post.proclaim(leading, "two");

  EXPECT_TRUE(kit::eventually([&] { return version == 2; }));
  leading.release();
  nothing_is_left();
  cluster_->move_slot(slot(name), from);
}

/// A slot in two halves for three leases: the holder goes on or is told, nobody else gets in, and
/// nobody is told "held" by a server that can't know.
void stay_half_migrated(redis_cluster& cluster, const std::string& address, const std::string& name,
                        redis_cluster::keys what) {
  const auto slot = kit::slot_of(name);
  const std::size_t from = cluster.owner_of(slot);
  const std::size_t to = (from + 1) % cluster.masters();
  constexpr auto lease_length = 1s;
  const client store = open_as(address, "holder");
  const client other = open_as(address, "other", {.request_timeout = 300ms});
  mutex door{store, name, through_the_store(lease_length)};
  mutex same{other, name, through_the_store(lease_length)};
  auto held = door.acquire();
  waiter next{address, name, through_the_store(lease_length)};
  ASSERT_TRUE(queue_has(store, name, 1));

  cluster.begin_migration(slot, to, what);
  const auto until = lease_clock::now() + 3 * lease_length + 200ms;
  while (lease_clock::now() < until) {
    EXPECT_FALSE(held.valid() && next.is_in()) << "two holders";
    std::error_code trouble;
    const auto got = same.try_acquire(trouble);
    EXPECT_FALSE(got && (held.valid() || next.is_in())) << "two holders";
    EXPECT_TRUE(trouble == errc::unavailable || trouble == errc::outcome_unknown)
        << "a half slot can't tell: " << trouble.message();
    std::this_thread::sleep_for(50ms);
  }
  // Renewals name one key and follow it.
  EXPECT_TRUE(held.valid());
  cluster.finish_migration(slot, to);

  held.release();
  ASSERT_TRUE(next.comes_in());
  EXPECT_GT(next.token(), held.token());
  next.leave();
}

TEST_F(Cluster, KeepsALockWhoseSlotIsHalfMigrated) {
  const std::string name = "half-moved";
  stay_half_migrated(*cluster_, address(), name, redis_cluster::keys::move);
  nothing_is_left();
}

TEST_F(Cluster, KeepsALockWhoseSlotHasHardlyMigrated) {
  const std::string name = "hardly-moved";
  stay_half_migrated(*cluster_, address(), name, redis_cluster::keys::stay);
  nothing_is_left();
}

TEST_F(Cluster, SpreadsLeasesOverReplicas) {
  const client store = open_as(address() + "?replicas=1", "holder");
  for (const char* name : {"r-1", "r-2", "r-3", "r-4"}) {
    mutex door{store, name, through_the_store()};
    auto held = door.acquire();
    waiter next{address() + "?replicas=1", name};
    ASSERT_TRUE(queue_has(store, name, 1)) << name;
    held.release();
    ASSERT_TRUE(next.comes_in(900ms)) << name;
    next.leave();
  }
  nothing_is_left();
}

TEST_F(Cluster, IsFoundThroughAnyNode) {
  const std::vector<std::uint16_t> seeds{cluster_->replica(0, 0).port()};
  const client store = open_as("redis+cluster://" + places(seeds), "by a replica");
  mutex door{store, "any-node", through_the_store()};
  EXPECT_TRUE(door.try_acquire());

  const client late =
      open_as("redis+cluster://127.0.0.1:1," + places({cluster_->node(2).port()}), "by the second");
  mutex same{late, "any-node-2", through_the_store()};
  EXPECT_TRUE(same.try_acquire());
}

TEST_F(Cluster, IsNoSingleServer) {
  try {
    const client store =
        client::open("redis://127.0.0.1:" + std::to_string(cluster_->node(0).port()));
    FAIL() << "opened";
  } catch (const lock_error& error) {
    EXPECT_NE(std::string(error.what()).find("redis+cluster://"), std::string::npos)
        << error.what();
  }
  const kit::redis_server single;
  try {
    const client store = client::open("redis+cluster://" + places({single.port()}));
    FAIL() << "opened";
  } catch (const lock_error& error) {
    EXPECT_NE(std::string(error.what()).find("use redis://"), std::string::npos) << error.what();
  }
}

/// Last, since it leaves the cluster with another master.
TEST_F(Cluster, GoesOnWithAReplicaThatWasPromoted) {
  const std::string name = "promoted";
  const std::size_t owner = cluster_->owner_of(slot(name));
  const client store = open_as(address(), "holder");
  mutex door{store, name, through_the_store()};
  auto held = door.acquire();
  waiter next{address(), name};
  ASSERT_TRUE(queue_has(store, name, 1));

  cluster_->node(owner).kill();
  // Some renewals are in vain; the holder keeps its lock or is told.
  const auto until = lease_clock::now() + 6s;
  while (lease_clock::now() < until) {
    EXPECT_FALSE(held.valid() && next.is_in()) << "two holders";
    std::this_thread::sleep_for(10ms);
  }
  held.release();
  ASSERT_TRUE(next.comes_in());
  EXPECT_GT(next.token(), held.token());
  next.leave();

  auto again = try_until_in(door);
  ASSERT_TRUE(again);
  EXPECT_GT(again->token(), next.token());
  again->release();
  cluster_->node(owner).start();
  cluster_->wait_until_ok();
  nothing_is_left();
}

}  // namespace
}  // namespace sallyport::backends::redis
