#include "backends/memcached/test_live_server.hpp"
#include "tests/contract/kit/holder_process.hpp"
#include "tests/kit/shifted_clock.hpp"

#include <cstdlib>
#include <list>
#include <vector>

// What may befall clients: they are killed, their wall clock is moved, and many wait in one of them.
namespace sallyport::memcached_live {
namespace {

TEST(KilledHolder, DelaysOthersByItsLeaseAndTwoSecondsAtMost) {
  const memcached_server server;
  mutex wanted{open(server.port()), "door", lasting()};
  contract::holder_process holder{address_at(server.port()), "door", {"--lease-ms", "2000"}};
  ASSERT_TRUE(holder.ask("acquire").starts_with("acquired"));
  const auto began = lease_clock::now();
  holder.kill();

  EXPECT_TRUE(wanted.try_acquire_for(patience));
  EXPECT_LT(lease_clock::now() - began, 2s + 2s + 250ms + contract::slack);
}

TEST(KilledWaiter, DelaysNobodyAndLeavesNothing) {
  const memcached_server server;
  mutex first{open(server.port()), "door", lasting()};
  auto held = first.acquire();
  contract::holder_process dead{address_at(server.port()), "door", {"--lease-ms", "60000"}};
  const auto before = server.stat("get_misses") + server.stat("get_hits");
  ASSERT_TRUE(dead.send("acquire"));
  ASSERT_TRUE(eventually([&] {
    return server.stat("get_misses") + server.stat("get_hits") > before + 1;
  })) << "it asks";

  dead.kill();
  EXPECT_EQ(held.release(), release_result::released);
  mutex next{open(server.port()), "door", lasting()};
  auto got = next.try_acquire_for(patience);

  ASSERT_TRUE(got);
  EXPECT_EQ(got->release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(ClientsClock, IsNobodysBusiness) {
  const memcached_server server;
  kit::shifted_clock clock;
  for (const std::string& each : clock.environment()) {
    const auto equals = each.find('=');
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody reads it meanwhile.
    ::setenv(each.substr(0, equals).c_str(), each.substr(equals + 1).c_str(), 1);
  }
  contract::holder_process holder{address_at(server.port()), "door", {"--lease-ms", "2000"}};
  for (const std::string& each : clock.environment()) {
    ::unsetenv(each.substr(0, each.find('=')).c_str());  // NOLINT(concurrency-mt-unsafe)
  }
  ASSERT_TRUE(holder.ask("acquire").starts_with("acquired"));
  mutex other{open(server.port()), "door", lasting()};

  for (const auto step : {2h, -4h}) {
    clock.step(step);
    // Longer than the lease, so it was renewed meanwhile.
    EXPECT_FALSE(other.try_acquire_for(2300ms));
    EXPECT_EQ(holder.ask("valid"), "true");
  }

  EXPECT_EQ(holder.ask("release"), "released");
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(Connections, AreOneForTwoHundredWaiters) {
  const memcached_server server;
  const auto owner = open(server.port());
  std::list<mutex> blockers;
  std::vector<lease> held;
  for (int i = 0; i < 200; ++i) {
    blockers.emplace_back(owner, "door " + std::to_string(i), lasting());
    held.push_back(blockers.back().acquire());
  }
  const auto crowd = open(server.port());
  std::list<mutex> locks;
  std::list<waiter> waiters;
  // Names of their own: waiters of one name would share a contender.
  for (int i = 0; i < 200; ++i) locks.emplace_back(crowd, "door " + std::to_string(i), lasting());

  const auto asked = server.stat("get_hits");
  for (mutex& each : locks) waiters.emplace_back(each);
  ASSERT_TRUE(eventually([&] { return server.stat("get_hits") > asked + 400; })) << "they ask";

  const auto probe = server.probe();
  std::size_t open_now = 0;
  // Closed ones of other questions may still be there for a moment.
  EXPECT_TRUE(eventually([&] {
    open_now = 0;
    for (const std::string& each : probe->lines_until_end("stats conns")) {
      const bool state = each.find(":state ") != std::string::npos;
      if (state && each.find("conn_listening") == std::string::npos) ++open_now;
    }
    return open_now == 3;
  })) << open_now
      << " connections, not one of the owner, one of the crowd and this one";
  for (waiter& each : waiters) each.cancel();
  waiters.clear();
  held.clear();
  EXPECT_TRUE(nothing_is_left(server));
}

}  // namespace
}  // namespace sallyport::memcached_live
