#include "backends/redis/test_live_topology.hpp"
#include "tests/kit/redis_leftovers.hpp"
#include "tests/kit/redis_server.hpp"

#include <algorithm>

namespace sallyport::backends::redis {
namespace {

using kit::redis_server;

/// A master and one replica, or two.
class Replicas : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    master_ = std::make_unique<redis_server>();
    replica_ = std::make_unique<redis_server>(kit::redis_options{.replica_of = master_->port()});
    // A replica that is online may still be busy with its beginning.
    ASSERT_TRUE(kit::eventually([] {
      auto probe = master_->probe();
      probe.expect({"SET", "nothing", "1"});
      probe.expect({"DEL", "nothing"});
      return probe.expect({"WAIT", "1", "1000"}).integer == 1;
    }));
  }
  static void TearDownTestSuite() {
    replica_.reset();
    master_.reset();
  }

  static std::string address(unsigned replicas) {
    return "redis://127.0.0.1:" + std::to_string(master_->port()) +
           "?replicas=" + std::to_string(replicas);
  }

  static void nothing_is_left() {
    std::vector<std::string> left;
    EXPECT_TRUE(kit::eventually([&] {
      auto probe = master_->probe();
      left = kit::leftovers(probe);
      return left.empty();
    })) << left.front();
  }

  static std::unique_ptr<redis_server> master_;
  static std::unique_ptr<redis_server> replica_;
};

std::unique_ptr<redis_server> Replicas::master_;
std::unique_ptr<redis_server> Replicas::replica_;

TEST_F(Replicas, HaveTheGrantBeforeItCounts) {
  // How long the replica takes is not asked here.
  const client store = open_as(address(1), "holder", {.request_timeout = 10s});
  mutex door{store, "kept", through_the_store()};

  for (int i = 0; i < 20; ++i) {
    auto held = door.try_acquire();
    ASSERT_TRUE(held);
    // Not eventually: it is there when acquire returns.
    EXPECT_EQ(replica_->command({"EXISTS", "kept"}).integer, 1);
    held->release();
  }
  nothing_is_left();
}

TEST_F(Replicas, AreSpokenOfInTheCapabilities) {
  const client store = open_as(address(1), "holder");

  const auto& caveats = store.capabilities().caveats;
  EXPECT_TRUE(std::any_of(caveats.begin(), caveats.end(), [](const std::string& each) {
    return each.starts_with("replicas=1: ");
  }));
}

TEST_F(Replicas, TooFewTakeTheGrantBack) {
  const client store = open_as(address(2), "holder", {.request_timeout = 600ms});
  mutex door{store, "too-few", through_the_store()};

  try {
    (void)door.try_acquire();
    FAIL() << "granted";
  } catch (const lock_error& error) {
    EXPECT_EQ(error.code(), errc::unavailable);
    EXPECT_NE(std::string(error.what()).find("only 1 of 2 replicas have the grant"),
              std::string::npos)
        << error.what();
  }

  EXPECT_FALSE(store.who("too-few"));
  nothing_is_left();
}

TEST_F(Replicas, HaveTheGrantThatIsHandedOver) {
  const client store = open_as(address(1), "holder");
  mutex door{store, "handed", through_the_store()};
  auto held = door.acquire();
  waiter next{address(1), "handed"};
  ASSERT_TRUE(queue_has(store, "handed", 1));
  const fencing_token before = held.token();

  held.release();

  ASSERT_TRUE(next.comes_in(900ms)) << "it lives on heartbeats";
  EXPECT_GT(next.token(), before);
  EXPECT_EQ(store.who("handed").value().holders.at(0).claimed, true);
  EXPECT_EQ(replica_->command({"GET", "handed"}).text, master_->command({"GET", "handed"}).text);
  next.leave();
  nothing_is_left();
}

TEST_F(Replicas, ServeManyHandOversInTurn) {
  const client store = open_as(address(1), "counter");
  std::vector<std::unique_ptr<waiter>> all;
  mutex door{store, "many", through_the_store()};
  auto held = door.acquire();
  for (int i = 0; i < 4; ++i) all.push_back(std::make_unique<waiter>(address(1), "many"));
  ASSERT_TRUE(queue_has(store, "many", 4));
  held.release();

  fencing_token last = held.token();
  for (std::size_t served = 0; served < all.size(); ++served) {
    waiter* in = nullptr;
    ASSERT_TRUE(kit::eventually([&] {
      for (const auto& each : all) {
        if (each && each->is_in()) in = each.get();
      }
      return in != nullptr;
    }));
    EXPECT_GT(in->token(), last);
    last = in->token();
    in->leave();
    for (auto& each : all) {
      if (each.get() == in) each.reset();
    }
  }
  nothing_is_left();
}

TEST_F(Replicas, ThatFallSilentEndTheLease) {
  const client store = open_as(address(1), "holder", {.request_timeout = 500ms});
  mutex door{store, "silent", through_the_store(1s)};
  auto held = door.try_acquire();
  ASSERT_TRUE(held);

  replica_->pause();
  const bool lost =
      kit::eventually([&] { return held->state() == lease_state::lost; }, std::chrono::seconds{5});
  // While the master keeps the old grant it is held; then there is nobody to count on.
  const bool told = kit::eventually([&] {
    std::error_code trouble;
    EXPECT_FALSE(door.try_acquire(trouble));
    return trouble == errc::unavailable || trouble == errc::outcome_unknown;
  });
  replica_->resume();

  EXPECT_TRUE(lost) << "nobody else may have it, but its holder must not rely on it";
  EXPECT_TRUE(told);
  auto again = try_until_in(door);
  ASSERT_TRUE(again);
  EXPECT_GT(again->token(), held->token());
  again->release();
  nothing_is_left();
}

TEST_F(Replicas, KnowScriptsThatTheServerForgot) {
  const client store = open_as(address(1), "holder");
  mutex door{store, "flushed", through_the_store(600ms)};
  auto held = door.try_acquire();
  ASSERT_TRUE(held);

  master_->command({"SCRIPT", "FLUSH"});
  std::this_thread::sleep_for(1500ms);

  EXPECT_TRUE(held->valid());
}

TEST_F(Replicas, HaveADowngradedGrant) {
  const client store = open_as(address(1), "holder");
  shared_mutex door{store, "downgraded", through_the_store()};
  auto held = door.try_acquire();
  ASSERT_TRUE(held);

  held->downgrade();

  EXPECT_EQ(held->mode(), lock_mode::shared);
  EXPECT_TRUE(held->valid());
}

TEST_F(Replicas, TooFewForADowngradeLeaveNoWriterBesideAReader) {
  const client store = open_as(address(1), "writer", {.request_timeout = 500ms});
  shared_mutex door{store, "half-downgraded", through_the_store(10s)};
  auto writer = door.try_acquire();
  ASSERT_TRUE(writer);
  const client other = open_as(address(0), "reader");
  shared_mutex same_door{other, "half-downgraded", through_the_store(10s)};
  ASSERT_FALSE(same_door.try_acquire_shared());

  replica_->pause();
  EXPECT_THROW(writer->downgrade(), lock_error);
  replica_->resume();
  const auto reader = same_door.try_acquire_shared();

  // The server has let readers in, whatever its replicas have heard.
  ASSERT_TRUE(reader);
  EXPECT_EQ(writer->mode(), lock_mode::shared) << "a writer beside a reader";
  writer->release();
}

}  // namespace
}  // namespace sallyport::backends::redis
