#include "backends/sql/test_live_store.hpp"
#include "tests/contract/kit/holder_process.hpp"
#include "tests/kit/shifted_clock.hpp"

#include <cstdlib>

// What becomes of locks when clients die, and when clocks are set.
namespace sallyport::sql_live {
namespace {

using contract::holder_process;

TEST(KilledHolder, DelaysByItsLeaseAndLeavesNothing) {
  const auto server = start_server();
  open(server->address());
  holder_process dead{server->address(), "door", {"--lease-ms", "800"}};
  ASSERT_TRUE(dead.ask("acquire").starts_with("acquired"));
  mutex lock{open(server->address()), "door", lasting()};

  dead.kill();
  auto held = lock.try_acquire_for(800ms + contract::slack);

  ASSERT_TRUE(held);
  held->release();
  EXPECT_TRUE(nothing_is_left(*server));
}

TEST(KilledWaiter, DelaysByItsClaimWindowAtMostAndLeavesNothing) {
  const auto server = start_server();
  mutex held_lock{open(server->address()), "door", lasting()};
  auto held = held_lock.acquire();
  holder_process dead{server->address(), "door", {"--lease-ms", "900"}};
  ASSERT_TRUE(dead.send("acquire"));
  ASSERT_TRUE(waiters_become(*server, 1));
  mutex next_lock{open(server->address()), "door", lasting()};
  waiter next(next_lock);
  ASSERT_TRUE(waiters_become(*server, 2));

  dead.kill();
  held.release();
  const auto released = lease_clock::now();
  auto got = next.get();

  ASSERT_TRUE(got);
  EXPECT_LT(lease_clock::now() - released, 900ms + contract::slack);
  got->release();
  EXPECT_TRUE(nothing_is_left(*server));
}

TEST(DeadReaders, AreAllTakenAwayAtOnce) {
  const auto server = start_server();
  open(server->address());
  for (int i = 0; i < 3; ++i) leave_dead_reader(*server, "room", i);
  shared_mutex room{open(server->address()), "room", lasting()};

  auto held = room.acquire();

  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(*server));
}

TEST(ClientsClock, IsNobodysBusiness) {
  const auto server = start_server();
  kit::shifted_clock clock;
  for (const std::string& each : clock.environment()) {
    const auto equals = each.find('=');
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody reads it meanwhile.
    ::setenv(each.substr(0, equals).c_str(), each.substr(equals + 1).c_str(), 1);
  }
  holder_process holder{server->address(), "door", {"--lease-ms", "900"}};
  for (const std::string& each : clock.environment()) {
    ::unsetenv(each.substr(0, each.find('=')).c_str());  // NOLINT(concurrency-mt-unsafe)
  }
  ASSERT_TRUE(holder.ask("acquire").starts_with("acquired"));
  mutex other{open(server->address()), "door", lasting()};

  for (const auto step : {2h, -4h}) {
    clock.step(step);
    // Longer than the lease, so it was renewed meanwhile.
    EXPECT_FALSE(other.try_acquire_for(1200ms));
    EXPECT_EQ(holder.ask("valid"), "true");
  }

  EXPECT_EQ(holder.ask("release"), "released");
}

TEST(ServersClock, SetForwardEndsLeasesAndKeepsTheOrderOfTokens) {
  kit::shifted_clock clock;
  const auto server = start_server(&clock);
  mutex lock{open(server->address()), "door", lasting()};
  mutex other{open(server->address()), "door", lasting()};
  auto held = lock.acquire();
  const auto token = held.token();

  clock.step(2min);
  auto next = other.try_acquire_for(10s);

  ASSERT_TRUE(next);
  EXPECT_GT(next->token(), token);
  EXPECT_NE(held.release(), release_result::released) << "it was another's by then";
}

}  // namespace
}  // namespace sallyport::sql_live
