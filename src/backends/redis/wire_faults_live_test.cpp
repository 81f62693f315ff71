#include "backends/redis/test_live_store.hpp"
#include "tests/kit/fault_proxy.hpp"

#include <atomic>
#include <functional>
#include <vector>

// What a network may do to one request: the answer is lost, the connection is cut in the middle, one
// direction falls silent. Whatever happens: never two holders, nothing left behind.
namespace sallyport::redis_live {
namespace {

using kit::ending;
using kit::fault;
using kit::fault_proxy;
using kit::flow;

/// How the network fails.
struct trouble {
  std::string name;
  std::function<void(fault_proxy&)> begin;
};

std::vector<trouble> all_troubles() {
  std::vector<trouble> all{
      {"answer_lost_and_reset",
       [](fault_proxy& proxy) { proxy.set(flow::to_client, fault::drop_reply()); }},
      {"answer_lost_and_closed",
       [](fault_proxy& proxy) { proxy.set(flow::to_client, fault::drop_reply(ending::finish)); }},
      {"answer_lost_in_silence",
       [](fault_proxy& proxy) { proxy.set(flow::to_client, fault::silence()); }},
      {"request_lost_in_silence",
       [](fault_proxy& proxy) { proxy.set(flow::to_server, fault::silence()); }},
      {"both_held", [](fault_proxy& proxy) {
         proxy.set(flow::to_server, fault::hold());
         proxy.set(flow::to_client, fault::hold());
       }}};
  for (const std::uint64_t bytes : {0U, 1U, 40U, 200U}) {
    all.push_back({"request_cut_after_" + std::to_string(bytes), [bytes](fault_proxy& proxy) {
                     proxy.set(flow::to_server, fault::cut_after(bytes));
                   }});
  }
  for (const std::uint64_t bytes : {1U, 4U}) {
    all.push_back({"answer_cut_after_" + std::to_string(bytes), [bytes](fault_proxy& proxy) {
                     proxy.set(flow::to_client, fault::cut_after(bytes));
                   }});
  }
  return all;
}

class WireFault : public testing::TestWithParam<trouble> {
 protected:
  void begin_trouble() { GetParam().begin(proxy_); }
  /// The network works again; connections with a hole in them are gone.
  void heal() {
    proxy_.heal();
    proxy_.close_all();
  }

  redis_server server_;
  fault_proxy proxy_{server_.port()};
  const client hurt_ = open(proxy_.port());      // through the proxy
  const client healthy_ = open(server_.port());  // not
};

TEST_P(WireFault, InMidAcquireLeavesAtMostOneHolder) {
  mutex lock{hurt_, "door", lasting(5s)};
  mutex other{healthy_, "door", lasting(5s)};
  ASSERT_TRUE(lock.try_acquire());  // connected, and released again

  begin_trouble();
  std::optional<lease> got;
  const told error = error_of([&] { got = lock.try_acquire(); });
  // A try that failed may have left a grant that is yet to be taken back; it is nobody's.
  auto theirs = other.try_acquire();
  EXPECT_FALSE(got && got->valid() && theirs);
  if (!got) {
    EXPECT_TRUE(error.code == errc::outcome_unknown || error.code == errc::unavailable)
        << error.text;
  }
  heal();

  got.reset();
  theirs.reset();
  EXPECT_TRUE(nothing_is_left(server_));
  EXPECT_TRUE(other.try_acquire_for(patience));
}

TEST_P(WireFault, InMidAcquireIsWaitedOut) {
  mutex lock{hurt_, "door", lasting(5s)};
  ASSERT_TRUE(lock.try_acquire());

  begin_trouble();
  waiter next(lock);
  // Long enough for the request to be overdue; a cut connection may be made again before.
  static_cast<void>(eventually([&] { return next.done(); }, 700ms));
  heal();

  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->valid());
  mutex other{healthy_, "door", lasting()};
  EXPECT_FALSE(other.try_acquire());
  got->release();
  EXPECT_TRUE(nothing_is_left(server_));
}

TEST_P(WireFault, InMidReleaseIsRepeatedUntilTheStoreKnows) {
  mutex lock{hurt_, "door", lasting(30s)};
  mutex other{healthy_, "door", lasting(30s)};
  auto held = lock.acquire();

  begin_trouble();
  const auto result = held.release();
  EXPECT_NE(result, release_result::already_lost);
  heal();

  // Long before the lease of 30 s ends.
  auto got = other.try_acquire_for(patience);
  ASSERT_TRUE(got);
  EXPECT_GT(got->token(), held.token());
  got->release();
  EXPECT_TRUE(nothing_is_left(server_));
}

INSTANTIATE_TEST_SUITE_P(Kinds, WireFault, testing::ValuesIn(all_troubles()),
                         [](const auto& each) { return each.param.name; });

/// One holder whose network fails while it renews.
struct hurt_holder {
  explicit hurt_holder(const redis_server& server, trouble how)
      : what(std::move(how)), proxy(server.port()) {
    auto options = quick();
    options.watcher = watcher;
    lock.emplace(open(proxy.port(), options), lock_name(what.name), lasting(4500ms));
    held.emplace(lock->acquire());
  }

  trouble what;
  fault_proxy proxy;
  std::shared_ptr<metrics> watcher = std::make_shared<metrics>();
  std::optional<mutex> lock;
  std::optional<lease> held;
};

// All at the same time: each takes as long as a lease.
TEST(WireFaults, InMidRenewalAreRepeatedInTime) {
  const redis_server server;
  std::vector<std::unique_ptr<hurt_holder>> all;
  for (const trouble& each : all_troubles()) {
    all.push_back(std::make_unique<hurt_holder>(server, each));
  }
  for (const auto& each : all) {
    ASSERT_TRUE(eventually([&] { return each->watcher->read().renewed >= 1; })) << each->what.name;
  }

  for (const auto& each : all) each->what.begin(each->proxy);
  // Over the next renewal, which is due after a third of the lease.
  const auto trouble_until = lease_clock::now() + 1700ms;
  static_cast<void>(eventually([&] { return lease_clock::now() >= trouble_until; }));
  std::vector<std::uint64_t> renewed;
  for (const auto& each : all) {
    EXPECT_TRUE(each->held->valid()) << each->what.name;
    each->proxy.heal();
    each->proxy.close_all();
    renewed.push_back(each->watcher->read().renewed);
  }

  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& each = all[i];
    EXPECT_TRUE(eventually([&] { return each->watcher->read().renewed > renewed[i]; }))
        << each->what.name;
    EXPECT_TRUE(each->held->valid()) << each->what.name;
    EXPECT_EQ(each->watcher->read().lost, 0U) << each->what.name;
    EXPECT_EQ(each->held->release(), release_result::released) << each->what.name;
  }
  EXPECT_TRUE(nothing_is_left(server));
}

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
