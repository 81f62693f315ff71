#include "backends/memcached/test_live_server.hpp"
#include "base/log.hpp"

#include <list>
#include <vector>

// What a cache may do to a lock: restart, flush, evict, stand still, be full; and how coarse its
// clock is.
namespace sallyport::memcached_live {
namespace {

TEST(Restart, IsToldToHoldersLongBeforeTheirLeaseEnds) {
  base::set_log_sink([](base::log_level, std::string_view) {});
  memcached_server server;
  auto watcher = std::make_shared<metrics>();
  auto options = quick();
  options.watcher = watcher;
  mutex lock{open(server.port(), options), "door", lasting(9s)};
  const auto held = lock.acquire();
  // From its first renewal on it is told at once.
  ASSERT_TRUE(eventually([&] { return watcher->read().renewed >= 1; }));

  server.restart();
  const auto restarted = lease_clock::now();

  EXPECT_TRUE(becomes_lost(held));
  EXPECT_LT(lease_clock::now() - restarted, 2500ms) << "a third of the lease is 3 s";
  EXPECT_TRUE(lock.try_acquire_for(patience)) << "the name is free";
  base::set_log_sink({});
}

TEST(Restart, ThatReusesCasNumbersHarmsNobodyElse) {
  base::set_log_sink([](base::log_level, std::string_view) {});
  memcached_server server;
  mutex old_lock{open(server.port()), "door", lasting(60s)};
  auto old_grant = old_lock.acquire();  // CAS 1 of its server

  server.restart();
  mutex next_lock{open(server.port()), "door", lasting(60s)};
  const auto next_grant = next_lock.acquire();  // CAS 1 of the new one

  EXPECT_NE(old_grant.release(), release_result::released);
  EXPECT_TRUE(next_grant.valid());
  EXPECT_FALSE(old_lock.try_acquire()) << "the other's item is still there";
  base::set_log_sink({});
}

TEST(Flush, IsToldAtTheNextRenewal) {
  const memcached_server server;
  mutex lock{open(server.port()), "door", lasting(3s)};
  const auto held = lock.acquire();

  ASSERT_EQ(server.probe()->ask("flush_all"), "OK");
  const auto flushed = lease_clock::now();

  EXPECT_TRUE(becomes_lost(held));
  EXPECT_LT(lease_clock::now() - flushed, 3s) << "renewed, and found gone";
  EXPECT_TRUE(lock.try_acquire());
}

/// Fills the server until very much was evicted, of every size that a lock's item may have: each size
/// has memory of its own.
void flood(const memcached_server& server) {
  const auto probe = server.probe();
  std::uint64_t number = 0;
  ASSERT_TRUE(eventually([&] {
    for (int i = 0; i < 2000; ++i) {
      const std::string ballast(40 + ++number % 12 * 8, 'x');
      static_cast<void>(probe->ask("set b" + std::to_string(number) + " 0 0 " +
                                   std::to_string(ballast.size()) + "\r\n" + ballast));
    }
    return server.stat("evictions") > 40'000;
  }));
}

TEST(Eviction, TakesALockAndIsToldAtTheNextRenewal) {
  const memcached_server server{{.arguments = {"-m", "2"}}};
  mutex lock{open(server.port()), "door", lasting(20s)};
  const auto held = lock.acquire();

  flood(server);
  ASSERT_EQ(server.probe()->ask("mg door"), "EN") << "it was not evicted: the test proves nothing";

  // It learns that from its renewal, after a third of the lease; the flood may have taken as long.
  EXPECT_TRUE(becomes_lost(held));
  EXPECT_LT(lease_clock::now(), held.deadline());
}

TEST(Eviction, PassesShortItemsByWhereTheServerIsToldSo) {
  const memcached_server server{{.arguments = {"-m", "2", "-o", "temporary_ttl=61"}}};
  const auto store = open(server.port());
  mutex lock{store, "door", lasting(30s)};
  const auto held = lock.acquire();

  flood(server);

  EXPECT_TRUE(server.probe()->ask("mg door c").starts_with("HD"));
  bool said = false;
  for (const std::string& each : store.capabilities().caveats) {
    said = said || each.find("less than 61 s") != std::string::npos;
  }
  EXPECT_TRUE(said);
}

TEST(Memory, ThatIsUsedUpIsAnErrorAndTakesNobodysLock) {
  const memcached_server server{{.arguments = {"-m", "2", "-M"}}};
  mutex lock{open(server.port()), "door", ending(60s)};
  const auto held = lock.acquire();
  const auto probe = server.probe();
  // Items of every size that ours may have.
  for (int size = 1; size < 400; size += 8) {
    const std::string ballast(static_cast<std::size_t>(size), 'x');
    for (int i = 0;; ++i) {
      const std::string said = probe->ask("set b" + std::to_string(size) + "-" + std::to_string(i) +
                                          " 0 0 " + std::to_string(size) + "\r\n" + ballast);
      if (said != "STORED") break;
    }
  }
  auto options = quick();
  options.store_patience = 300ms;
  mutex other{open(server.port(), options), "door", lasting()};

  const told error = error_of([&] { EXPECT_FALSE(other.try_acquire()); });

  if (error.code) {
    EXPECT_EQ(error.code, errc::unavailable) << error.text;
    EXPECT_TRUE(holds(error.text, "out of memory"));
  }
  EXPECT_TRUE(probe->ask("mg door c").starts_with("HD")) << "ms would have deleted it";
  EXPECT_TRUE(held.valid());
}

TEST(Standstill, EndsLeasesByTheHoldersOwnClock) {
  memcached_server server;
  mutex lock{open(server.port()), "door", lasting(2s)};
  const auto held = lock.acquire();

  server.pause();
  EXPECT_TRUE(becomes_lost(held)) << "also when nobody answers";
  const told error = error_of([&] { static_cast<void>(lock.try_acquire()); });
  server.resume();

  // Whether anything was sent depends on when the silence was noticed.
  EXPECT_TRUE(error.code == errc::outcome_unknown || error.code == errc::unavailable) << error.text;
  EXPECT_TRUE(lock.try_acquire_for(patience));
  EXPECT_TRUE(nothing_is_left(server)) << "what was sent into the standstill is taken back";
}

TEST(Clock, NeverEndsAnItemBeforeTheLease) {
  const memcached_server server;
  const auto store = open(server.port());
  std::list<mutex> locks;
  std::vector<lease> held;
  // All over the second, so that some are added just before the server's clock moves.
  for (int i = 0; i < 40; ++i) {
    locks.emplace_back(store, "door " + std::to_string(i), ending(1s));
    held.push_back(locks.back().acquire());
    contract::wait_until(lease_clock::now() + 25ms);
    for (const lease& each : held) {
      // Asked before the item is looked for: valid then means that it was there.
      const bool valid = each.valid();
      const auto seen = store.who(each.name());
      EXPECT_TRUE(!valid || !each.valid() || seen) << each.name().text();
    }
  }
  EXPECT_TRUE(becomes_lost(held.back()));
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(Connections, OneTooManyIsUnavailableAndNotRefused) {
  const memcached_server server{{.arguments = {"-c", "24"}}};
  std::vector<std::unique_ptr<kit::memcached_probe>> all;
  // The server takes some descriptors for itself.
  static_cast<void>(eventually(
      [&] {
        all.push_back(std::make_unique<kit::memcached_probe>(server.port()));
        try {
          return !all.back()->ask("version").starts_with("VERSION");
        } catch (const kit::kit_error&) {
          return true;
        }
      },
      5s));
  auto options = quick();
  options.store_patience = 300ms;
  const auto late = open(server.port(), options);
  mutex lock{late, "door", lasting()};

  const told error = error_of([&] { static_cast<void>(lock.try_acquire()); });
  EXPECT_EQ(error.code, errc::unavailable) << error.text;
  EXPECT_TRUE(holds(error.text, "-c"));

  all.clear();
  EXPECT_TRUE(lock.try_acquire_for(patience)) << "there is room now";
}

}  // namespace
}  // namespace sallyport::memcached_live
