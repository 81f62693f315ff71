#include "backends/postgres/test_live_store.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

// Through pgbouncer. The contract suite runs there as well (SALLYPORT_POSTGRES_SETUP=pooled).
namespace sallyport::postgres_live {
namespace {

bool speaks_of_a_pooler(const client& store) {
  const auto& all = store.capabilities().caveats;
  return std::ranges::any_of(
      all, [](const std::string& each) { return each.find("pooler") != std::string::npos; });
}

TEST(Pooler, OfTransactionsIsNoticedAndNothingIsKeptInSessions) {
  const postgres_server server;
  const kit::pgbouncer pooler{server, "transaction", 2};
  EXPECT_FALSE(speaks_of_a_pooler(open(server.address())));
  std::vector<std::unique_ptr<background<int>>> all;
  int inside = 0;
  int entered = 0;

  all.reserve(5);
  for (int i = 0; i < 5; ++i) {
    all.push_back(std::make_unique<background<int>>([&] {
      const auto store = open(pooler.address());
      EXPECT_TRUE(speaks_of_a_pooler(store));
      mutex lock{store, "door", lasting()};
      for (int turn = 0; turn < 3; ++turn) {
        auto held = lock.acquire();
        EXPECT_EQ(++inside, 1);
        ++entered;
        --inside;
      }
      return 0;
    }));
  }
  for (auto& each : all) each->get();

  EXPECT_EQ(entered, 15);
  EXPECT_EQ(server.value("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"), "0");
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(Pooler, OfSessionsIsUsedLikeTheServerItself) {
  const postgres_server server;
  const kit::pgbouncer pooler{server, "session", 8};
  const std::string address = pooler.address() + "?pooler=session";
  mutex lock{open(address), "door", lasting()};
  mutex wanted{open(address), "door", lasting()};
  auto held = lock.acquire();
  waiter next(wanted);
  ASSERT_TRUE(waiters_become(server, 1));

  held.release();
  auto got = next.get();

  ASSERT_TRUE(got);
  EXPECT_EQ(got->release(), release_result::released);
  EXPECT_EQ(server.value("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"), "1");
}

TEST(Pooler, KeepsNobodyBehindItFromALockThatOthersUseAllTheTime) {
  const postgres_server server;
  const kit::pgbouncer pooler{server, "transaction", 2};
  std::atomic<int> turns{0};
  std::vector<std::jthread> heard;
  heard.reserve(3);
  for (int i = 0; i < 3; ++i) {
    heard.emplace_back([&, store = open(server.address())](const std::stop_token& stop) {
      mutex lock{store, "door", lasting()};
      while (!stop.stop_requested()) {
        const auto held = lock.acquire(stop);
        if (held) contract::wait_until(lease_clock::now() + std::chrono::milliseconds{10});
        ++turns;
      }
    });
  }
  mutex unheard{open(pooler.address()), "door", lasting()};
  ASSERT_TRUE(eventually([&] { return turns.load() > 10; }));

  for (int i = 0; i < 3; ++i) {
    const int before = turns.load();
    EXPECT_TRUE(unheard.try_acquire_for(2 * quick().heartbeat + contract::slack))
        << "not in, while others had " << turns.load() - before << " turns";
  }
}

}  // namespace
}  // namespace sallyport::postgres_live
