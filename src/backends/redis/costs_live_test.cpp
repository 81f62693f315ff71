#include "backends/redis/test_live_store.hpp"

#include <functional>
#include <map>
#include <string>
#include <system_error>

// What docs/redis.md says about costs: commands on the wire for every step, and connections.
namespace sallyport::redis_live {
namespace {

class Costs : public testing::Test {
 protected:
  /// Script calls on the wire while `work` runs.
  std::uint64_t calls_in(const std::function<void()>& work) {
    const auto before = calls_of(server_, "evalsha") + calls_of(server_, "eval");
    work();
    return calls_of(server_, "evalsha") + calls_of(server_, "eval") - before;
  }
  [[nodiscard]] std::int64_t connections() const {
    // Ours have a name that begins so; the probe has none.
    const std::string all = server_.command({"CLIENT", "LIST"}).text;
    std::int64_t count = 0;
    for (auto at = all.find("name=sallyport:"); at != std::string::npos;
         at = all.find("name=sallyport:", at + 1)) {
      ++count;
    }
    return count;
  }

  redis_server server_;
};

TEST_F(Costs, OfAFreeLockAreOneCallToTakeAndOneToLeave) {
  mutex lock{open(server_.port()), "door", lasting()};
  constexpr std::uint64_t rounds = 50;
  EXPECT_EQ(calls_in([&] {
              for (std::uint64_t i = 0; i < rounds; ++i) EXPECT_TRUE(lock.try_acquire());
            }),
            2 * rounds);
}

TEST_F(Costs, OfAHeldLockAreOneCallToFindOut) {
  mutex held_lock{open(server_.port()), "door", lasting()};
  mutex lock{open(server_.port()), "door", lasting()};
  auto held = held_lock.acquire();
  EXPECT_EQ(calls_in([&] { EXPECT_FALSE(lock.try_acquire()); }), 1U);
}

TEST_F(Costs, OfARenewalAreOneCall) {
  const auto watcher = std::make_shared<metrics>();
  auto options = quick();
  options.watcher = watcher;
  mutex lock{open(server_.port(), options), "door", lasting(900ms)};
  auto held = lock.acquire();
  ASSERT_TRUE(eventually([&] { return watcher->read().renewed >= 1; }));
  const auto renewed = watcher->read().renewed;
  const auto calls = calls_in(
      [&] { ASSERT_TRUE(eventually([&] { return watcher->read().renewed >= renewed + 5; })); });
  EXPECT_GE(calls, 5U);
  EXPECT_LE(calls, 5U + 2U) << "one may be under way at either end";
}

TEST_F(Costs, OfWaitingAreOneCallAHeartbeat) {
  mutex held_lock{open(server_.port()), "door", lasting()};
  auto held = held_lock.acquire();
  mutex lock{open(server_.port(), {.label = "waiter"}), "door", lasting()};
  waiter next(lock);
  ASSERT_TRUE(waiters_become(server_, "door", 1));
  const auto began = lease_clock::now();
  const auto calls = calls_in(
      [&] { ASSERT_TRUE(eventually([&] { return lease_clock::now() - began >= 2500ms; })); });
  EXPECT_GE(calls, 1U);
  EXPECT_LE(calls, 4U);
  next.cancel();
  EXPECT_FALSE(next.get());
}

TEST_F(Costs, OfAClientAreOneConnectionAndASecondForWaiters) {
  const auto store = open(server_.port());
  EXPECT_EQ(connections(), 1);
  mutex lock{store, "door", lasting()};
  { EXPECT_TRUE(lock.try_acquire()); }
  EXPECT_EQ(connections(), 1);
  mutex held_lock{store, "window", lasting()};
  auto held = held_lock.acquire();
  mutex again{store, "window", lasting()};
  waiter next(again);
  ASSERT_TRUE(waiters_become(server_, "window", 1));
  EXPECT_EQ(connections(), 2);
  next.cancel();
  EXPECT_FALSE(next.get());
}

TEST_F(Costs, OfAReconnectAreNoScriptsThatTheServerHas) {
  mutex lock{open(server_.port()), "door", lasting()};
  { ASSERT_TRUE(lock.try_acquire()); }
  const auto received = [&] { return std::stoull(server_.probe().info("total_net_input_bytes")); };
  const auto before = received();
  const auto greetings = calls_of(server_, "script|exists");
  server_.command({"CLIENT", "KILL", "TYPE", "NORMAL"});
  // What was written before the client knew of the end is answered by nobody.
  const auto acquired_again = [&] {
    std::error_code error;
    return lock.try_acquire(error).has_value();
  };
  ASSERT_TRUE(eventually(acquired_again));

  EXPECT_EQ(calls_of(server_, "script|exists"), greetings + 1);
  // The log-in, the questions, 12 names of scripts, one call to raise the counter, a pair, and what we ask.
  EXPECT_LT(received() - before, 4'000U);
}

TEST_F(Costs, OfTheFirstConnectionToAServerAreAllScriptsOnce) {
  const auto first = open(server_.port());
  EXPECT_EQ(calls_of(server_, "script|load"), 12U);
  const auto second = open(server_.port());
  EXPECT_EQ(calls_of(server_, "script|load"), 12U);
}

}  // namespace
}  // namespace sallyport::redis_live
