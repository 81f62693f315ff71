#include "backends/redis/test_live_store.hpp"
#include "tests/kit/fault_proxy.hpp"
#include "tests/kit/shifted_clock.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

// What becomes of locks when the server restarts, forgets, stands still or has its clock moved.
namespace sallyport::redis_live {
namespace {

using kit::fault_proxy;

/// When the lease was told lost, by the lease clock. Waits for it.
lease_clock::time_point told_lost_at(const lease_view& view) {
  std::atomic<bool> told{false};
  lease_clock::time_point at{};
  const std::stop_callback heard(view.lost(), [&] {
    at = lease_clock::now();
    told.store(true);
  });
  EXPECT_TRUE(eventually([&] { return told.load(); })) << "nobody was told";
  return at;
}

// ---- what is heard of an outage ------------------------------------------------------------------

TEST(Outage, IsHeardByObserversWithItsReasonAndItsLength) {
  struct log final : observer {
    void lost(const lock_event& event) override { loss = event; }
    void store_away(const store_event& event) override { away = event; }
    void store_back(const store_event& event) override { back = event; }
    lock_event loss;
    store_event away;
    store_event back;
  };
  redis_server server{{.persistence = kit::redis_persistence::append_always}};
  const auto counted = std::make_shared<metrics>();
  const auto logged = std::make_shared<log>();
  auto options = quick();
  options.watchers = {logged, counted};  // whoever reads what was counted finds it logged
  const auto store = open(server.port(), options);
  mutex kept_lock{store, "kept", lasting(20s)};
  mutex lost_lock{store, "lost", lasting(1s)};
  auto kept = kept_lock.acquire();
  auto lost = lost_lock.acquire();

  server.kill();
  ASSERT_TRUE(eventually([&] { return counted->read().lost == 1; }));
  const release_result given_back = kept.release();
  server.start();

  ASSERT_TRUE(eventually([&] { return counted->read().store_back == 1; }));
  EXPECT_EQ(given_back, release_result::unknown);
  const auto seen = counted->read();
  EXPECT_EQ(seen.store_away, 1U);
  EXPECT_EQ(seen.suspect, 1U);
  EXPECT_EQ(seen.release_unknown, 1U);
  EXPECT_EQ(seen.released, 0U);
  EXPECT_GT(seen.away, 300ms);
  EXPECT_EQ(logged->loss.name, "lost");
  EXPECT_EQ(logged->loss.reason, event_reason::not_renewed);
  EXPECT_TRUE(logged->loss.error == errc::unavailable ||
              logged->loss.error == errc::outcome_unknown);
  EXPECT_NE(logged->away.detail.find("redis at 127.0.0.1"), std::string::npos)
      << logged->away.detail;
  EXPECT_EQ(logged->back.away, seen.away);
  EXPECT_EQ(logged->back.detail, logged->away.detail);
}

TEST(Outage, IsToldToWhoObservesAnElection) {
  redis_server server{{.persistence = kit::redis_persistence::append_always}};
  election leading{open(server.port()), "leader", lasting(30s)};
  election watched{open(server.port()), "leader", lasting(30s)};
  const auto leads = leading.campaign("one");
  std::atomic<int> known{0};
  std::atomic<int> unknown{0};
  const auto observing = watched.observe(
      [&](const auto& leader) {
        EXPECT_EQ(leader.value().value, "one");
        ++known;
      },
      [&](const lock_error&) { ++unknown; });
  ASSERT_TRUE(eventually([&] { return known == 1; }));

  const auto began = lease_clock::now();
  server.kill();
  ASSERT_TRUE(eventually([&] { return unknown == 1; }));
  const auto noticed = lease_clock::now();
  server.start();

  // The same leader, but now it is known again.
  EXPECT_TRUE(eventually([&] { return known == 2; }));
  EXPECT_LT(noticed - began, quick().heartbeat + quick().request_timeout + slack);
  EXPECT_EQ(unknown, 1);
}

TEST(Outage, OfAServerThatStandsStillIsToldToWhoObservesAnElection) {
  redis_server server;
  auto options = quick();
  options.heartbeat = 200ms;
  options.request_timeout = 300ms;
  election watched{open(server.port(), options), "leader", lasting(30s)};
  std::atomic<int> known{0};
  std::atomic<int> unknown{0};
  const auto observing =
      watched.observe([&](const auto&) { ++known; }, [&](const lock_error&) { ++unknown; });
  ASSERT_TRUE(eventually([&] { return known == 1; }));

  const auto began = lease_clock::now();
  server.pause();
  ASSERT_TRUE(eventually([&] { return unknown == 1; }));
  const auto noticed = lease_clock::now();
  server.resume();

  EXPECT_TRUE(eventually([&] { return known == 2; }));
  EXPECT_LT(noticed - began, 2s) << "a reading that hangs counts as failed in time";
}

// ---- restarts ------------------------------------------------------------------------------------

TEST(Restart, IsNotSurvivedWhereRewritesAreNotSynced) {
  redis_server server{{.persistence = kit::redis_persistence::append_always,
                       .config = {"no-appendfsync-on-rewrite yes"}}};

  const auto store = open(server.port());

  EXPECT_FALSE(store.capabilities().survives_store_restart);
  EXPECT_TRUE(std::ranges::any_of(store.capabilities().caveats, [](const std::string& each) {
    return each.find("no-appendfsync-on-rewrite") != std::string::npos;
  }));
}

TEST(Restart, WithAnAppendOnlyFileKeepsLocksAndTokens) {
  redis_server server{{.persistence = kit::redis_persistence::append_always}};
  const auto first = open(server.port());
  const auto second = open(server.port());
  EXPECT_TRUE(first.capabilities().survives_store_restart);
  mutex held_lock{first, "door", lasting(30s)};
  mutex wanted_lock{second, "door", lasting(30s)};
  auto held = held_lock.acquire();
  waiter next(wanted_lock);
  ASSERT_TRUE(waiters_become(server, "door", 1));

  server.kill();
  server.start();

  EXPECT_TRUE(held.valid());
  EXPECT_EQ(server.command({"EXISTS", "door"}).integer, 1);
  mutex other{open(server.port()), "door", lasting()};
  EXPECT_FALSE(other.try_acquire());
  EXPECT_FALSE(next.done());
  const auto token = held.token();
  EXPECT_EQ(held.release(), release_result::released);
  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_GT(got->token(), token);
  got->release();
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(Restart, WithAnAppendOnlyFileLetsRenewalsGoOn) {
  redis_server server{{.persistence = kit::redis_persistence::append_always}};
  const auto watcher = std::make_shared<metrics>();
  auto options = quick();
  options.watcher = watcher;
  mutex lock{open(server.port(), options), "door", lasting(3s)};
  auto held = lock.acquire();

  server.kill();
  server.start();
  const auto renewed = watcher->read().renewed;

  EXPECT_TRUE(eventually([&] { return watcher->read().renewed >= renewed + 2; }));
  EXPECT_TRUE(held.valid());
  EXPECT_EQ(held.release(), release_result::released);
}

TEST(Restart, WithoutPersistenceIsToldToTheHolderAtItsNextRenewal) {
  redis_server server;
  mutex lock{open(server.port()), "door", lasting(6s)};
  auto held = lock.acquire();
  const auto token = held.token();
  const auto deadline = held.deadline();

  server.kill();
  server.start();

  // A third of the lease, and what a connection costs: well before the deadline.
  EXPECT_LT(told_lost_at(held), deadline - 1s);
  EXPECT_FALSE(held.valid());
  EXPECT_EQ(held.release(), release_result::already_lost);
  auto again = lock.acquire();
  EXPECT_GT(again.token(), token);
  again.release();
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(Restart, WithoutPersistenceLetsWaitersGoOn) {
  redis_server server;
  const auto first = open(server.port());
  mutex held_lock{first, "door", lasting(60s)};
  auto held = held_lock.acquire();
  std::vector<std::unique_ptr<mutex>> locks;
  std::vector<waiter> waiters;
  for (int i = 0; i < 3; ++i) {
    locks.push_back(std::make_unique<mutex>(open(server.port()), "door", lasting()));
    waiters.emplace_back(*locks.back());
    ASSERT_TRUE(waiters_become(server, "door", i + 1));
  }

  server.kill();
  server.start();

  // Nobody holds it any more; they enter one after the other, each with a larger token.
  std::vector<std::uint64_t> tokens{held.token().value()};
  std::vector<bool> taken(waiters.size(), false);
  for (std::size_t i = 0; i < waiters.size(); ++i) {
    std::size_t next = waiters.size();
    ASSERT_TRUE(eventually([&] {
      for (std::size_t k = 0; k < waiters.size(); ++k) {
        if (!taken[k] && waiters[k].done()) next = k;
      }
      return next < waiters.size();
    }));
    taken[next] = true;
    auto got = waiters[next].get();
    ASSERT_TRUE(got);
    EXPECT_GT(got->token().value(), tokens.back());
    tokens.push_back(got->token().value());
    got->release();
  }
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(FlushAll, IsToldToTheHolderAndLetsTheWaiterIn) {
  const redis_server server;
  mutex held_lock{open(server.port()), "door", lasting(3s)};
  mutex wanted_lock{open(server.port()), "door", lasting(3s)};
  auto held = held_lock.acquire();
  const auto token = held.token();
  waiter next(wanted_lock);
  ASSERT_TRUE(waiters_become(server, "door", 1));

  server.command({"FLUSHALL"});

  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_GT(got->token(), token);
  EXPECT_TRUE(becomes_lost(held));
  EXPECT_EQ(held.release(), release_result::already_lost);
  EXPECT_TRUE(got->valid()) << "the late holder's release took the lock from the next one";
  got->release();
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(FlushAll, OfSharedLocksIsToldToTheReaders) {
  const redis_server server;
  shared_mutex lock{open(server.port()), "book", lasting(3s)};
  auto reader = lock.acquire_shared();

  server.command({"FLUSHALL"});

  EXPECT_TRUE(becomes_lost(reader));
  EXPECT_TRUE(lock.try_acquire());
}

TEST(ScriptFlush, BetweenRequestsIsHealedOnTheSpot) {
  const redis_server server;
  mutex lock{open(server.port()), "door", lasting()};
  for (int i = 0; i < 20; ++i) {
    server.command({"SCRIPT", "FLUSH"});
    auto held = lock.try_acquire();
    ASSERT_TRUE(held);
    server.command({"SCRIPT", "FLUSH"});
    ASSERT_EQ(held->release(), release_result::released);
  }
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(ScriptFlush, DuringRequestsBreaksNoLock) {
  const redis_server server;
  const auto store = open(server.port());
  std::atomic<bool> enough{false};
  background flusher([&] {
    auto probe = server.probe();
    while (!enough.load()) probe.expect({"SCRIPT", "FLUSH"});
    return true;
  });
  std::atomic<int> inside{0};
  std::vector<background<int>> workers;
  workers.reserve(4);
  for (int i = 0; i < 4; ++i) {
    workers.emplace_back([&, i] {
      mutex lock{i % 2 == 0 ? store : open(server.port()), "door", lasting()};
      int entered = 0;
      for (int turn = 0; turn < 25; ++turn) {
        auto held = lock.acquire();
        EXPECT_EQ(inside.fetch_add(1), 0);
        ++entered;
        inside.fetch_sub(1);
        EXPECT_EQ(held.release(), release_result::released);
      }
      return entered;
    });
  }
  for (auto& each : workers) EXPECT_EQ(each.get(), 25);
  enough.store(true);
  flusher.get();
  EXPECT_TRUE(nothing_is_left(server));
}

// ---- servers that stand still --------------------------------------------------------------------

TEST(Standstill, LongerThanTheRequestTimeoutIsSurvived) {
  const redis_server server;
  auto probe = server.probe();
  mutex lock{open(server.port()), "door", lasting(10s)};
  auto held = lock.acquire();

  probe.send({"DEBUG", "SLEEP", "1.2"});  // the time-out is 500 ms
  const auto result = held.release();
  probe.receive();

  EXPECT_NE(result, release_result::already_lost);
  auto again = lock.acquire();
  EXPECT_TRUE(again.valid());
  again.release();
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(Standstill, InMidAcquireEndsWithALockOrNothing) {
  const redis_server server;
  auto probe = server.probe();
  const auto store = open(server.port());
  mutex lock{store, "door", lasting(10s)};

  probe.send({"DEBUG", "SLEEP", "1.2"});
  const told error = error_of([&] { static_cast<void>(lock.try_acquire()); });
  EXPECT_TRUE(error.code == errc::outcome_unknown || error.code == errc::unavailable) << error.text;
  probe.receive();

  // What the late request did is taken back in the background.
  EXPECT_TRUE(nothing_is_left(server));
  EXPECT_TRUE(lock.try_acquire());
}

TEST(Standstill, OfWritesIsWaitedOut) {
  const redis_server server;
  mutex lock{open(server.port()), "door", lasting(10s)};
  server.command({"CLIENT", "PAUSE", "1500", "WRITE"});

  auto held = lock.acquire();

  EXPECT_TRUE(held.valid());
  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(server));
}

/// Whether the loss was told when the deadline passed: never later than a busy machine may be.
void expect_told_at_deadline(const lease& held) {
  const auto at = told_lost_at(held);
  const auto deadline = held.deadline();
  EXPECT_GE(at, deadline - 1ms);
  EXPECT_LE(at, deadline + 250ms);
}

TEST(Standstill, LongerThanTheLeaseIsToldAtTheDeadline) {
  const redis_server server;
  auto probe = server.probe();
  mutex lock{open(server.port()), "door", lasting(1500ms)};
  auto held = lock.acquire();

  probe.send({"DEBUG", "SLEEP", "3"});
  expect_told_at_deadline(held);

  EXPECT_FALSE(held.valid());
  EXPECT_EQ(held.release(), release_result::already_lost);
  probe.receive();
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(Standstill, OfAllClientsIsToldAtTheDeadline) {
  const redis_server server;
  mutex lock{open(server.port()), "door", lasting(1500ms)};
  auto held = lock.acquire();

  server.command({"CLIENT", "PAUSE", "3000", "ALL"});

  expect_told_at_deadline(held);
}

TEST(Standstill, OfTheProcessIsToldAtTheDeadline) {
  redis_server server;
  mutex lock{open(server.port()), "door", lasting(1500ms)};
  auto held = lock.acquire();

  server.pause();
  expect_told_at_deadline(held);
  server.resume();

  auto again = lock.acquire();
  EXPECT_GT(again.token(), held.token());
}

// ---- a name that leads to another server ---------------------------------------------------------

/// Two servers behind one address, as a name or a virtual address has them: the second is a replica
/// of the first until the roles change. Connections that are open stay where they are.
class Demotion : public testing::Test {
 protected:
  Demotion() { become_replica(second_, first_); }

  [[nodiscard]] client open_here() const { return open(address_.port()); }
  [[nodiscard]] redis_server& first() { return first_; }
  [[nodiscard]] redis_server& second() { return second_; }
  [[nodiscard]] fault_proxy& address() { return address_; }

  void change_roles() {
    EXPECT_TRUE(eventually([&] {
      return in_replication(first_, "master_repl_offset") ==
             in_replication(second_, "slave_repl_offset");
    }));
    second_.command({"REPLICAOF", "NO", "ONE"});
    become_replica(first_, second_);
  }
  void lead_to_second() { address_.set_target(second_.port()); }
  /// Connections that clients of ours have with it.
  [[nodiscard]] static std::size_t clients_of(const redis_server& server) {
    const std::string all = server.command({"CLIENT", "LIST", "TYPE", "NORMAL"}).text +
                            server.command({"CLIENT", "LIST", "TYPE", "PUBSUB"}).text;
    std::size_t count = 0;
    for (auto at = all.find("name=sallyport:"); at != std::string::npos;
         at = all.find("name=sallyport:", at + 1)) {
      ++count;
    }
    return count;
  }

 private:
  static std::string in_replication(const redis_server& server, const std::string& field) {
    const std::string all = server.command({"INFO", "replication"}).text;
    const auto at = all.find(field + ':');
    return at == std::string::npos ? ""
                                   : all.substr(at, all.find('\r', at) - at).substr(field.size());
  }
  static void become_replica(redis_server& server, const redis_server& of) {
    server.command({"REPLICAOF", "127.0.0.1", std::to_string(of.port())});
    EXPECT_TRUE(eventually([&] { return in_replication(server, "master_link_status") == ":up"; }));
  }

  redis_server first_;
  redis_server second_;
  fault_proxy address_{first_.port()};
};

TEST_F(Demotion, LeadsHoldersAndWaitersToTheNewMaster) {
  mutex held_lock{open_here(), "door", lasting(3s)};
  mutex wanted_lock{open_here(), "door", lasting(3s)};
  auto held = held_lock.acquire();
  const auto token = held.token();
  waiter next(wanted_lock);
  ASSERT_TRUE(waiters_become(first(), "door", 1));

  lead_to_second();
  change_roles();

  const auto deadline = held.deadline();
  EXPECT_TRUE(eventually([&] { return held.deadline() > deadline + 3s; })) << "not renewed";
  EXPECT_TRUE(held.valid());
  EXPECT_TRUE(eventually([&] { return clients_of(first()) == 0; })) << "some stay with the replica";
  ASSERT_TRUE(waiters_become(second(), "door", 1));
  EXPECT_EQ(held.release(), release_result::released);
  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_GT(got->token(), token);
  got->release();
  EXPECT_TRUE(nothing_is_left(second()));
}

TEST_F(Demotion, IsWaitedOutWhileTheAddressLeadsToTheReplica) {
  const auto store = open_here();
  mutex held_lock{store, "door", lasting(5s)};
  mutex free_lock{store, "gate", lasting(5s)};
  auto held = held_lock.acquire();
  change_roles();
  const auto made_before = address().counts().connections.size();

  const told error = error_of([&] { static_cast<void>(free_lock.try_acquire()); });
  waiter next(free_lock);
  std::this_thread::sleep_for(1500ms);

  EXPECT_EQ(error.code, errc::unavailable) << error.text;
  EXPECT_FALSE(next.done()) << "a fail-over under way is no reason to give up";
  EXPECT_LT(address().counts().connections.size() - made_before, 100U) << "it spins";
  lead_to_second();
  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->valid());
  EXPECT_TRUE(held.valid());
  EXPECT_TRUE(eventually([&] { return clients_of(first()) == 0; })) << "some stay with the replica";
}

// ---- the server's wall clock ---------------------------------------------------------------------

class ClockStep : public testing::TestWithParam<std::chrono::hours> {
 protected:
  kit::shifted_clock clock_;
  redis_server server_{{.clock = &clock_}};
};

TEST_P(ClockStep, MayLetTwoInButTheGateRefusesTheLateOne) {
  const auto first = open(server_.port());
  const auto second = open(server_.port());
  mutex held_lock{first, "door", lasting(30s)};
  mutex wanted_lock{second, "door", lasting(30s)};
  fence::memory_gate gate;
  int written = 0;
  auto held = held_lock.acquire();
  ASSERT_EQ(gate.run(held, [&] { written = 1; }), fence::verdict::passed);

  clock_.step(GetParam());
  // Forwards the grant has ended by the server's clock, and the next one enters. Backwards it lives
  // for an hour longer, and ends when it is released.
  if (GetParam() < 0h) held.release();
  auto next = wanted_lock.acquire();

  EXPECT_GT(next.token(), held.token()) << "tokens keep their order whatever the clock does";
  EXPECT_EQ(gate.run(next, [&] { written = 2; }), fence::verdict::passed);
  EXPECT_EQ(gate.run(held, [&] { written = 3; }), fence::verdict::stale);
  EXPECT_EQ(written, 2);
}

TEST_P(ClockStep, KeepsTokensInOrderOverALostCounter) {
  mutex lock{open(server_.port()), "door", lasting(30s)};
  std::vector<std::uint64_t> tokens;
  for (int i = 0; i < 3; ++i) {
    auto held = lock.acquire();
    tokens.push_back(held.token().value());
    clock_.step(GetParam());
    held.release();
  }
  EXPECT_TRUE(std::is_sorted(tokens.begin(), tokens.end()));
  EXPECT_EQ(std::adjacent_find(tokens.begin(), tokens.end()), tokens.end());
}

TEST_P(ClockStep, LetsWaitersGoOn) {
  mutex held_lock{open(server_.port()), "door", lasting(30s)};
  mutex wanted_lock{open(server_.port()), "door", lasting(30s)};
  auto held = held_lock.acquire();
  waiter next(wanted_lock);
  ASSERT_TRUE(waiters_become(server_, "door", 1));

  clock_.step(GetParam());
  held.release();

  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_GT(got->token(), held.token());
}

TEST_P(ClockStep, LeavesNoSharedLockBehind) {
  shared_mutex lock{open(server_.port()), "book", lasting(2s)};
  auto reader = lock.acquire_shared();
  clock_.step(GetParam());
  reader.release();

  auto writer = lock.try_acquire_for(patience);

  EXPECT_TRUE(writer);
}

INSTANTIATE_TEST_SUITE_P(Hours, ClockStep,
                         testing::Values(std::chrono::hours{1}, std::chrono::hours{-1}),
                         [](const auto& step) {
                           return step.param > std::chrono::hours{0} ? "forwards" : "backwards";
                         });

}  // namespace
}  // namespace sallyport::redis_live
