#include "backends/pipeline/test_live_wire_faults.hpp"
#include "backends/redis/test_live_store.hpp"
#include "tests/kit/fault_proxy.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace sallyport::redis_live {
namespace {

using kit::fault;
using kit::fault_proxy;
using kit::flow;

/// The server of the tests that backends share.
class shared_server final : public live::server {
 public:
  [[nodiscard]] std::uint16_t port() const override { return server_.port(); }
  [[nodiscard]] client open(std::uint16_t port, client_options options) const override {
    return redis_live::open(port, std::move(options));
  }
  [[nodiscard]] testing::AssertionResult nothing_is_left() const override {
    return redis_live::nothing_is_left(server_);
  }
  [[nodiscard]] std::chrono::milliseconds short_lease() const override { return 5s; }

 private:
  const redis_server server_;
};

// ---- connections that are killed -----------------------------------------------------------------

TEST(KilledConnection, OfNoticesCostsAHeartbeatAtMost) {
  const redis_server server;
  mutex held_lock{open(server.port()), "door", lasting()};
  mutex wanted_lock{open(server.port()), "door", lasting()};
  auto held = held_lock.acquire();
  waiter next(wanted_lock);
  ASSERT_TRUE(waiters_become(server, "door", 1));

  server.command({"CLIENT", "KILL", "TYPE", "pubsub"});
  held.release();
  const auto released = lease_clock::now();

  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_LT(lease_clock::now() - released, quick().heartbeat + 500ms);
}

TEST(KilledConnection, OfNoticesKeepsThePlace) {
  const redis_server server;
  mutex held_lock{open(server.port()), "door", lasting()};
  auto held = held_lock.acquire();
  fault_proxy proxy{server.port()};
  auto patient = quick();
  patient.heartbeat = 2s;  // it does not ask again by itself while the test runs
  mutex first_lock{open(proxy.port(), patient), "door", lasting()};
  mutex second_lock{open(server.port()), "door", lasting()};
  waiter first(first_lock);
  ASSERT_TRUE(waiters_become(server, "door", 1));
  waiter second(second_lock);
  ASSERT_TRUE(waiters_become(server, "door", 2));

  // The first one is deaf when its turn comes: it is set aside, and the second one enters.
  proxy.refuse_connections();
  proxy.close_all();
  held.release();
  auto second_got = second.get();
  ASSERT_TRUE(second_got);
  EXPECT_EQ(server.command({"ZCARD", "door\1absent"}).integer, 1);
  mutex third_lock{open(server.port()), "door", lasting()};
  waiter third(third_lock);
  ASSERT_TRUE(waiters_become(server, "door", 1));

  // It comes back, to its old place: before the third.
  proxy.accept_connections();
  ASSERT_TRUE(waiters_become(server, "door", 2));
  second_got->release();
  auto first_got = first.get();
  ASSERT_TRUE(first_got);
  EXPECT_FALSE(third.done());
  first_got->release();
  auto third_got = third.get();
  ASSERT_TRUE(third_got);
  EXPECT_GT(third_got->token(), first_got->token());
  third_got->release();
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(KilledConnection, OfCommandsAgainAndAgainBreaksNoLock) {
  const redis_server server;
  std::atomic<bool> enough{false};
  background killer([&] {
    auto probe = server.probe();
    while (!enough.load()) {
      probe.expect({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
      static_cast<void>(eventually([&] { return enough.load(); }, 150ms));
    }
    return true;
  });
  std::atomic<int> inside{0};
  std::vector<background<int>> workers;
  for (int i = 0; i < 3; ++i) {
    workers.emplace_back([&] {
      mutex lock{open(server.port()), "door", lasting(10s)};
      int entered = 0;
      for (int turn = 0; turn < 15; ++turn) {
        auto held = lock.acquire();
        EXPECT_EQ(inside.fetch_add(1), 0);
        ++entered;
        inside.fetch_sub(1);
        EXPECT_NE(held.release(), release_result::already_lost);
      }
      return entered;
    });
  }
  for (auto& each : workers) EXPECT_EQ(each.get(), 15);
  enough.store(true);
  killer.get();
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(KilledConnection, OfTheHolderIsNoLoss) {
  const redis_server server;
  mutex lock{open(server.port()), "door", lasting(3s)};
  auto held = lock.acquire();

  for (int i = 0; i < 3; ++i) {
    server.command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
    ASSERT_TRUE(held.valid());
  }

  EXPECT_NE(held.release(), release_result::already_lost);
  EXPECT_TRUE(nothing_is_left(server));
}

// Servers end idle connections (`timeout`), and so do the boxes in between. Nobody reads an idle
// connection; the next command must not be lost on it.
TEST(KilledConnection, ThatWasIdleCostsNoOutcome) {
  const redis_server server;
  const auto store = open(server.port());
  mutex lock{store, "door", lasting(60s)};
  for (int i = 0; i < 5; ++i) {
    const auto kill_when_idle = [&] {
      const auto since = lease_clock::now();
      ASSERT_TRUE(eventually([&] { return lease_clock::now() - since > 20ms; }));
      server.command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
    };
    kill_when_idle();
    std::optional<lease> held;
    const told error = error_of([&] { held = lock.try_acquire(); });
    ASSERT_TRUE(held) << error.text;
    kill_when_idle();
    EXPECT_EQ(held->release(), release_result::released);
    kill_when_idle();
    EXPECT_FALSE(store.who("door"));
  }
  EXPECT_TRUE(nothing_is_left(server));
}

// ---- clients that close ---------------------------------------------------------------------------

TEST(LostAnswer, OfAProclamationIsToldWithinTheRequestsTime) {
  const redis_server server;
  fault_proxy proxy{server.port()};
  election race{open(proxy.port()), "leader", lasting()};
  const auto leads = race.campaign("first");
  proxy.set(flow::to_client, fault::silence());
  const auto began = lease_clock::now();

  const auto told = error_of([&] { race.proclaim(leads, "second"); });

  EXPECT_EQ(told.code, errc::outcome_unknown) << told.text;
  EXPECT_LT(lease_clock::now() - began, quick().request_timeout + 2s);
}

TEST(ClosingClient, LeavesNothingOfAReleaseThatWasCutOff) {
  const redis_server server;
  for (const std::uint64_t bytes : {0U, 1U, 40U}) {
    fault_proxy proxy{server.port()};
    {
      mutex lock{open(proxy.port()), "door", lasting(60s)};
      auto held = lock.acquire();
      proxy.set(flow::to_server, fault::cut_after(bytes));
      EXPECT_NE(held.release(), release_result::already_lost);
    }

    EXPECT_TRUE(nothing_is_left(server)) << "cut after " << bytes << " bytes";
  }
}

TEST(ClosingClient, LeavesNothingOfAQuestionThatWasGivenUp) {
  const redis_server server;
  fault_proxy proxy{server.port()};
  {
    mutex lock{open(proxy.port()), "door", lasting(60s)};
    ASSERT_TRUE(lock.try_acquire());  // connected
    // Its question arrives when nobody wants its answer any more.
    proxy.set(flow::to_server, fault::delay(200ms));
    waiter next(lock);
    const auto asked = [](const kit::proxy_counts& now) {
      return now.total.read_from_client > now.total.passed_to_server;
    };
    ASSERT_TRUE(proxy.wait_for(asked));
    next.cancel();
    EXPECT_FALSE(next.get());
  }

  EXPECT_TRUE(nothing_is_left(server));
}

TEST(ClosingClient, DoesNotWaitLongForAServerThatIsGone) {
  auto server = std::make_unique<redis_server>();
  std::optional<mutex> lock{std::in_place, open(server->port()), "door", lasting(60s)};
  auto held = std::make_optional(lock->acquire());
  server.reset();
  held.reset();

  const auto began = lease_clock::now();
  lock.reset();

  EXPECT_LT(lease_clock::now() - began, 1500ms);
}

}  // namespace
}  // namespace sallyport::redis_live

std::unique_ptr<sallyport::live::server> sallyport::live::start_server() {
  return std::make_unique<redis_live::shared_server>();
}
