#include "backends/postgres/test_live_store.hpp"
#include "tests/contract/kit/holder_process.hpp"
#include "tests/kit/shifted_clock.hpp"

#include <cstdlib>
#include <memory>
#include <vector>

// What becomes of locks when the server restarts, stands still, ends connections or does not get on,
// and when clients die.
namespace sallyport::postgres_live {
namespace {

using contract::holder_process;

/// Returns when they have ended.
void end_connections(const postgres_server& server, const std::string& which) {
  server.rows(
      "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name LIKE "
      "'sallyport:%' AND " +
      which);
}

// ---- the server goes and comes -------------------------------------------------------------------

TEST(Restart, CleanOrNotKeepsLocksAndLetsRenewalsGoOn) {
  postgres_server server;
  const auto watcher = std::make_shared<metrics>();
  auto options = quick();
  options.watcher = watcher;
  mutex lock{open(server.address(), options), "door", lasting(6s)};
  auto held = lock.acquire();

  for (const bool clean : {true, false}) {
    if (clean) {
      server.stop();
    } else {
      server.kill();
    }
    server.start();
    const auto renewed = watcher->read().renewed;
    EXPECT_TRUE(eventually([&] { return watcher->read().renewed > renewed; }));
    EXPECT_TRUE(held.valid());
  }

  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(Standstill, IsToldInTimeAndNeverAsHeld) {
  postgres_server server;
  auto options = quick();
  options.store_patience = 500ms;
  const auto store = open(server.address(), options);
  mutex lock{store, "door", lasting(1500ms)};
  mutex other{store, "window", lasting()};
  auto held = lock.acquire();

  server.pause();
  const auto trouble = error_of([&] { static_cast<void>(other.try_acquire()); });
  EXPECT_TRUE(becomes_lost(held));
  EXPECT_GE(lease_clock::now(), held.deadline() - 1ms);
  server.resume();

  EXPECT_TRUE(trouble.code == errc::outcome_unknown || trouble.code == errc::unavailable)
      << trouble.words;
  auto again = lock.acquire();
  EXPECT_EQ(again.release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(server));
}

// ---- connections ---------------------------------------------------------------------------------

TEST(Connections, AreTwoForTwoHundredWaiters) {
  const postgres_server server;
  const auto owner = open(server.address());
  std::vector<lease> held;
  for (int i = 0; i < 200; ++i) {
    mutex blocker{owner, "door " + std::to_string(i), lasting()};
    held.push_back(blocker.acquire());
  }
  auto options = quick();
  options.label = "crowd";
  options.heartbeat = 2s;
  const auto crowd = open(server.address(), options);
  std::vector<std::unique_ptr<mutex>> locks;
  std::vector<std::unique_ptr<waiter>> waiters;
  locks.reserve(200);
  waiters.reserve(200);
  // Names of their own: waiters of one name would share a contender.
  for (int i = 0; i < 200; ++i) {
    locks.push_back(std::make_unique<mutex>(crowd, "door " + std::to_string(i), lasting()));
  }

  for (auto& each : locks) waiters.push_back(std::make_unique<waiter>(*each));
  ASSERT_TRUE(waiters_become(server, 200));

  EXPECT_EQ(connections_of(server, "crowd"), "2");
  for (auto& each : waiters) each->cancel();
  ASSERT_TRUE(waiters_become(server, 0));
  held.clear();
  waiters.clear();
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(Connections, ThatTheServerEndsAreMadeAgainAndNothingIsLost) {
  const postgres_server server;
  mutex lock{open(server.address()), "door", lasting()};
  mutex wanted{open(server.address()), "door", lasting()};
  auto held = lock.acquire();
  waiter next(wanted);
  ASSERT_TRUE(waiters_become(server, 1));

  end_connections(server, "true");

  EXPECT_EQ(held.release(), release_result::released);
  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_EQ(got->release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(LostNotice, CostsAHeartbeatAtMost) {
  const postgres_server server;
  mutex lock{open(server.address()), "door", lasting()};
  mutex wanted{open(server.address()), "door", lasting()};
  auto held = lock.acquire();
  waiter next(wanted);
  ASSERT_TRUE(waiters_become(server, 1));
  // The hand-over happens inside of a transaction that nobody is told of: the notice goes to nobody.
  server.rows("UPDATE sallyport.queue SET client = 1");

  held.release();
  const auto released = lease_clock::now();
  auto got = next.get();

  ASSERT_TRUE(got);
  EXPECT_LT(lease_clock::now() - released, 300ms + contract::slack);
  got->release();
}

TEST(ListeningConnection, ThatWasEndedIsMadeAgain) {
  const postgres_server server;
  mutex lock{open(server.address()), "door", lasting()};
  auto options = quick();
  options.label = "listener";
  mutex wanted{open(server.address(), options), "door", lasting()};
  auto held = lock.acquire();
  waiter next(wanted);
  ASSERT_TRUE(waiters_become(server, 1));
  ASSERT_TRUE(kit::eventually([&] { return connections_of(server, "listener") == "2"; }));

  end_connections(server, "query LIKE 'LISTEN%'");

  EXPECT_TRUE(kit::eventually([&] {
    return server.value(
               "SELECT count(*) FROM pg_stat_activity WHERE application_name = "
               "'sallyport:listener' AND query LIKE 'LISTEN%'") == "1";
  }));
  held.release();
  auto got = next.get();
  ASSERT_TRUE(got);
  got->release();
}

TEST(LostAnswer, OfAnAcquireIsTheSameGrant) {
  const postgres_server server;
  fault_proxy network{server.port()};
  const auto store = open(postgres_server::address_at(network.port()));
  mutex lock{store, "door", lasting()};
  lock.acquire().release();

  network.set(flow::to_client, fault::drop_reply(kit::ending::reset, "acquire"));
  auto held = lock.acquire();

  EXPECT_EQ(server.value("SELECT first_token FROM sallyport.lock"),
            std::to_string(held.token().value()));
  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(server));
}

// ---- time-outs and conflicts ---------------------------------------------------------------------

class Timeouts : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<postgres_server>(
        kit::postgres_options{.settings = {"deadlock_timeout=50ms"}});
    server_->rows("CREATE ROLE hasty LOGIN SUPERUSER");
    open(server_->address());
  }
  static void TearDownTestSuite() { server_.reset(); }

  /// What a try is told while somebody else keeps the name's lock.
  static told while_name_is_kept(const std::string& setting) {
    server_->rows("ALTER ROLE hasty RESET ALL; ALTER ROLE hasty SET " + setting);
    auto options = quick();
    options.request_timeout = 5s;
    options.store_patience = 200ms;
    mutex lock{open("postgres://hasty@127.0.0.1:" + std::to_string(server_->port()) + "/postgres",
                    options),
               "door", lasting()};
    postgres_probe keeper{server_->address()};
    keeper.rows("BEGIN; SELECT pg_advisory_xact_lock(sallyport.name_key('door'))");
    auto trouble = error_of([&] { static_cast<void>(lock.try_acquire()); });
    keeper.rows("ROLLBACK");
    auto held = lock.acquire();
    EXPECT_EQ(held.release(), release_result::released);
    return trouble;
  }

  static std::unique_ptr<postgres_server> server_;
};
std::unique_ptr<postgres_server> Timeouts::server_;

TEST_F(Timeouts, OfLocksAreTold) {
  const auto trouble = while_name_is_kept("lock_timeout = '100ms'");

  EXPECT_EQ(trouble.code, errc::unavailable);
  EXPECT_TRUE(trouble.says("55P03")) << trouble.words;
}

TEST_F(Timeouts, OfStatementsAreTold) {
  const auto trouble = while_name_is_kept("statement_timeout = '100ms'");

  EXPECT_EQ(trouble.code, errc::unavailable);
  EXPECT_TRUE(trouble.says("57014")) << trouble.words;
}

TEST_F(Timeouts, ADeadlockIsNotSeenByTheCaller) {
  mutex lock{open(server_->address()), "deadly", lasting()};
  auto held = lock.acquire();
  // The release has the name's lock and waits for the row; the other has the row and wants the name.
  postgres_probe other{server_->address()};
  other.rows("BEGIN; SELECT FROM sallyport.lock WHERE name = 'deadly' FOR UPDATE");
  background<release_result> release([&] { return held.release(); });
  ASSERT_TRUE(kit::eventually([&] {
    return server_->value("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") ==
           "1";
  }));

  // Whichever the server chooses as its victim: the other one goes on.
  other.begin("SELECT pg_advisory_xact_lock(sallyport.name_key('deadly'))");
  try {
    other.result();
  } catch (const kit::kit_error&) {
    // It was this one.
  }
  other.rows("ROLLBACK");

  EXPECT_EQ(release.get(), release_result::released);
}

TEST_F(Timeouts, ARaisedSerializationFailureIsRepeated) {
  // Twice the server says no, as it may under load; the third time it does it.
  server_->rows(
      "CREATE TABLE refusals (n integer); CREATE SEQUENCE refused; "
      "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
      "IF nextval('public.refused') <= 2 THEN RAISE EXCEPTION USING ERRCODE = '40001', "
      "MESSAGE = 'could not serialize'; END IF; RETURN NEW; END $$; "
      "CREATE TRIGGER refuse BEFORE INSERT ON sallyport.lock FOR EACH ROW EXECUTE FUNCTION "
      "refuse()");
  mutex lock{open(server_->address()), "serial", lasting()};

  auto held = lock.acquire();

  EXPECT_EQ(server_->value("SELECT last_value FROM refused"), "3");
  EXPECT_EQ(held.release(), release_result::released);
  server_->rows("DROP TRIGGER refuse ON sallyport.lock");
}

// ---- clients that die ----------------------------------------------------------------------------

TEST(KilledHolder, DelaysByItsLeaseAndLeavesNothing) {
  const postgres_server server;
  open(server.address());
  holder_process dead{server.address(), "door", {"--lease-ms", "800"}};
  ASSERT_TRUE(dead.ask("acquire").starts_with("acquired"));
  mutex lock{open(server.address()), "door", lasting()};

  dead.kill();
  auto held = lock.try_acquire_for(800ms + contract::slack);

  ASSERT_TRUE(held);
  held->release();
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(KilledWaiter, DelaysByItsClaimWindowAtMostAndLeavesNothing) {
  const postgres_server server;
  mutex held_lock{open(server.address()), "door", lasting()};
  auto held = held_lock.acquire();
  holder_process dead{server.address(), "door", {"--lease-ms", "900"}};
  ASSERT_TRUE(dead.send("acquire"));
  ASSERT_TRUE(waiters_become(server, 1));
  mutex next_lock{open(server.address()), "door", lasting()};
  waiter next(next_lock);
  ASSERT_TRUE(waiters_become(server, 2));

  dead.kill();
  held.release();
  const auto released = lease_clock::now();
  auto got = next.get();

  ASSERT_TRUE(got);
  EXPECT_LT(lease_clock::now() - released, 900ms + contract::slack);
  got->release();
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(DeadReaders, AreAllTakenAwayAtOnce) {
  const postgres_server server;
  open(server.address());
  for (int i = 0; i < 3; ++i) {
    server.rows(
        "SELECT sallyport.acquire('room', decode(md5('" + std::to_string(i) +
        "'), 'hex'), 2::smallint, 1::smallint, 50, 100, 100, true, 1, 1, 0, true, 7, 7, '', "
        "'', '')");
  }
  shared_mutex room{open(server.address()), "room", lasting()};

  auto held = room.acquire();

  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(ClientsClock, IsNobodysBusiness) {
  const postgres_server server;
  kit::shifted_clock clock;
  for (const std::string& each : clock.environment()) {
    const auto equals = each.find('=');
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody reads it meanwhile.
    ::setenv(each.substr(0, equals).c_str(), each.substr(equals + 1).c_str(), 1);
  }
  holder_process holder{server.address(), "door", {"--lease-ms", "900"}};
  for (const std::string& each : clock.environment()) {
    ::unsetenv(each.substr(0, each.find('=')).c_str());  // NOLINT(concurrency-mt-unsafe)
  }
  ASSERT_TRUE(holder.ask("acquire").starts_with("acquired"));
  mutex other{open(server.address()), "door", lasting()};

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
  const postgres_server server{{.clock = &clock}};
  mutex lock{open(server.address()), "door", lasting()};
  mutex other{open(server.address()), "door", lasting()};
  auto held = lock.acquire();
  const auto token = held.token();

  clock.step(2min);
  auto next = other.try_acquire_for(10s);

  ASSERT_TRUE(next);
  EXPECT_GT(next->token(), token);
  EXPECT_NE(held.release(), release_result::released) << "it was another's by then";
}

}  // namespace
}  // namespace sallyport::postgres_live
