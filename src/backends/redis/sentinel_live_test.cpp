#include "backends/redis/test_live_topology.hpp"
#include "tests/kit/redis_leftovers.hpp"
#include "tests/kit/redis_sentinel.hpp"

#include <fstream>

namespace sallyport::backends::redis {
namespace {

using kit::redis_sentinel_group;

/// One group for all tests; a test that takes the master away brings it back as a replica.
class Sentinel : public testing::Test {
 protected:
  static void SetUpTestSuite() { group_ = std::make_unique<redis_sentinel_group>(); }
  static void TearDownTestSuite() { group_.reset(); }

  static std::string address() {
    return "redis+sentinel://" + places(group_->sentinel_ports()) + "/mymaster";
  }

  /// Takes the master away while one holds and another waits. Nobody may be in together with
  /// somebody else by its own word, tokens grow, and in the end everybody has been in.
  static void fail_over_with_holder_and_waiter(redis_sentinel_group::how how) {
    const client store = open_as(address(), "holder");
    // Long enough that no renewal, which might not be copied in time, comes in between.
    mutex door{store, "fail-over", through_the_store(6s)};
    auto held = try_until_in(door);
    ASSERT_TRUE(held);
    const fencing_token first = held->token();
    waiter next{address(), "fail-over"};
    ASSERT_TRUE(queue_has(store, "fail-over", 1));
    // A grant that no replica has would be forgotten by the fail-over: that is not what is looked at here.
    ASSERT_TRUE(kit::eventually([] {
      auto probe = group_->master().probe();
      probe.expect({"SET", "copied", "1"});
      probe.expect({"DEL", "copied"});
      return probe.expect({"WAIT", "2", "1000"}).integer == 2;
    }));

    kit::redis_server& old = group_->fail_over(how);

    // The replicas were up to date, so the holder keeps its lock, unless it was too slow to renew.
    const auto settled = lease_clock::now() + 4s;
    while (lease_clock::now() < settled) {
      EXPECT_FALSE(next.is_in() && held->valid()) << "two holders";
      std::this_thread::sleep_for(5ms);
    }
    EXPECT_TRUE(held->valid() || held->state() == lease_state::lost);
    held->release();
    ASSERT_TRUE(next.comes_in());
    EXPECT_GT(next.token(), first);
    next.leave();

    auto again = try_until_in(door);
    ASSERT_TRUE(again);
    EXPECT_GT(again->token(), next.token());
    again->release();

    how == redis_sentinel_group::how::kill ? old.start() : old.resume();
    group_->wait_until_replica(old);
    nothing_is_left();
  }

  static void nothing_is_left() {
    std::vector<std::string> left;
    EXPECT_TRUE(kit::eventually([&] {
      auto probe = group_->master().probe();
      left = kit::leftovers(probe);
      return left.empty();
    })) << left.front();
  }

  static std::unique_ptr<redis_sentinel_group> group_;
};

std::unique_ptr<redis_sentinel_group> Sentinel::group_;

TEST_F(Sentinel, LeadsToTheMaster) {
  const client store = open_as(address(), "first");
  const client other = open_as(address(), "second");
  mutex door{store, "found", through_the_store()};
  mutex same{other, "found", through_the_store()};

  auto held = door.try_acquire();

  ASSERT_TRUE(held);
  EXPECT_FALSE(same.try_acquire());
  EXPECT_EQ(group_->master().command({"EXISTS", "found"}).integer, 1);
  held->release();
  nothing_is_left();
}

TEST_F(Sentinel, LeadsToTheStoreOfThatName) {
  const auto lock_at = [](const std::string& where) {
    mutex lock{open_as(where, "one"), "named", through_the_store()};
    const auto held = try_until_in(lock);
    return held ? held->fence_pass().lock : "nothing";
  };

  const std::string lock = lock_at(address());

  const std::string port = std::to_string(group_->master().port());
  EXPECT_EQ(lock_at("redis://127.0.0.1:" + port), lock);
  EXPECT_EQ(lock, "redis:" + group_->master().command({"GET", "\x01store"}).text + "|named");
}

TEST_F(Sentinel, HandsOverThroughTheMaster) {
  const client store = open_as(address(), "holder");
  mutex door{store, "handed", through_the_store()};
  auto held = door.acquire();
  waiter next{address(), "handed"};
  ASSERT_TRUE(queue_has(store, "handed", 1));

  held.release();

  EXPECT_TRUE(next.comes_in(900ms)) << "it lives on heartbeats";
}

TEST_F(Sentinel, SaysThatAGroupIsUnknown) {
  const std::string wrong = "redis+sentinel://" + places(group_->sentinel_ports()) + "/nobody";
  try {
    const client store = client::open(wrong);
    FAIL() << "opened";
  } catch (const lock_error& error) {
    EXPECT_EQ(error.code(), errc::store_refused);
    EXPECT_NE(std::string(error.what()).find("know no group 'nobody'"), std::string::npos)
        << error.what();
  }
}

TEST_F(Sentinel, AnswersUnavailableWhileNoSentinelCanBeReached) {
  const client store = open_as("redis+sentinel://127.0.0.1:1,127.0.0.1:2/mymaster", "alone",
                               {.store_patience = 500ms});
  mutex door{store, "unreachable"};

  try {
    (void)door.try_acquire();
    FAIL() << "it is no answer";
  } catch (const lock_error& error) {
    EXPECT_EQ(error.code(), errc::unavailable);
    EXPECT_NE(std::string(error.what()).find("no sentinel tells"), std::string::npos)
        << error.what();
  }
}

TEST_F(Sentinel, IsNotHeldUpByASilentOne) {
  group_->sentinel(0).pause();

  const auto began = lease_clock::now();
  const client store = open_as(address(), "first");
  mutex door{store, "silent", through_the_store()};
  auto held = door.try_acquire();
  const auto took = lease_clock::now() - began;
  group_->sentinel(0).resume();

  ASSERT_TRUE(held);
  EXPECT_LT(took, 1500ms);
}

TEST_F(Sentinel, WithAnotherSentinelGoneFollowsAFailOver) {
  group_->sentinel(1).kill();
  fail_over_with_holder_and_waiter(redis_sentinel_group::how::kill);
  group_->sentinel(1).start();
}

TEST_F(Sentinel, FollowsAFailOverFromAKilledMaster) {
  fail_over_with_holder_and_waiter(redis_sentinel_group::how::kill);
}

TEST_F(Sentinel, FollowsAFailOverFromASilentMaster) {
  fail_over_with_holder_and_waiter(redis_sentinel_group::how::pause);
}

TEST(SentinelSwitch, IsFollowedWhenItIsPlanned) {
  // With others that look around as often as these do, the new master is made a replica again by
  // those who have not heard of the switch yet.
  redis_sentinel_group group{{.replicas = 1, .sentinels = 1}};
  const std::string address = "redis+sentinel://" + places(group.sentinel_ports()) + "/mymaster";
  const client store = open_as(address, "holder");
  mutex door{store, "planned", through_the_store()};
  auto held = door.try_acquire();
  ASSERT_TRUE(held);
  const std::uint16_t before = group.current_master_port();

  // Refused, or given up, while the sentinels do not know enough of the replica.
  kit::redis_reply said;
  ASSERT_TRUE(kit::eventually(
      [&] {
        said = group.sentinel(0).probe().command({"SENTINEL", "FAILOVER", "mymaster"});
        const auto now = group.current_master_port();
        return now != 0 && now != before;
      },
      2 * kit::patience))
      << said << group.sentinel(0).log_tail();
  group.wait_until_replica(group.server_with_port(before));

  // Either way it is clear what has become of it.
  EXPECT_TRUE(kit::eventually(
      [&] { return held->state() == lease_state::held || held->state() == lease_state::lost; }));
  held->release();
  auto again = try_until_in(door);
  ASSERT_TRUE(again);
  EXPECT_GT(again->token(), held->token());
}

TEST(SentinelLogin, HasAPasswordOfItsOwn) {
  redis_sentinel_group group{
      {.replicas = 1,
       .server = {.password = "of-the-server", .master_password = "of-the-server"},
       .sentinel_password = "of-the-sentinels"}};
  const auto folder = group.server(0).folder();
  std::ofstream(folder / "server") << "of-the-server\n";
  std::ofstream(folder / "sentinels") << "of-the-sentinels\n";
  const std::string address = "redis+sentinel://" + places(group.sentinel_ports()) +
                              "/mymaster?password_file=" + (folder / "server").string() +
                              "&sentinel_password_file=" + (folder / "sentinels").string();

  const client store = open_as(address, "known");
  mutex door{store, "guarded"};

  EXPECT_TRUE(door.try_acquire());
}

TEST(SentinelNames, MayBeHostNames) {
  redis_sentinel_group group{{.replicas = 0, .sentinels = 1}};
  auto probe = group.sentinel(0).probe();
  probe.expect({"SENTINEL", "CONFIG", "SET", "resolve-hostnames", "yes"});
  probe.expect({"SENTINEL", "CONFIG", "SET", "announce-hostnames", "yes"});
  probe.expect({"SENTINEL", "REMOVE", "mymaster"});
  probe.expect({"SENTINEL", "MONITOR", "mymaster", "localhost",
                std::to_string(group.server(0).port()), "1"});
  ASSERT_EQ(probe.expect({"SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"}).items.at(0).text,
            "localhost");

  const client store = open_as(
      "redis+sentinel://localhost:" + std::to_string(group.sentinel(0).port()) + "/mymaster",
      "named");
  mutex door{store, "named"};

  EXPECT_TRUE(door.try_acquire());
}

}  // namespace
}  // namespace sallyport::backends::redis
