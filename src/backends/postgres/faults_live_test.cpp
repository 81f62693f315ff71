#include "backends/postgres/test_live_store.hpp"

#include <memory>
#include <string>

// What becomes of notices that are lost, and what callers are told when the server does not get on: of
// time-outs, and of conflicts with others.
namespace sallyport::postgres_live {
namespace {

// ---- notices -------------------------------------------------------------------------------------

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
  make_user(server, "listener");
  mutex wanted{open(with_user(server, "listener")), "door", lasting()};
  auto held = lock.acquire();
  waiter next(wanted);
  ASSERT_TRUE(waiters_become(server, 1));
  ASSERT_TRUE(kit::eventually([&] { return connections_of(server, "listener") == 2; }));

  server.rows(
      "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'listener' "
      "AND "
      "query LIKE 'LISTEN%'");

  EXPECT_TRUE(kit::eventually([&] {
    return server.value(
               "SELECT count(*) FROM pg_stat_activity WHERE usename = 'listener' AND query LIKE "
               "'LISTEN%'") == "1";
  }));
  held.release();
  auto got = next.get();
  ASSERT_TRUE(got);
  got->release();
}

// ---- time-outs and conflicts ---------------------------------------------------------------------

class Timeouts : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<postgres_server>(
        kit::postgres_options{.settings = {"deadlock_timeout=50ms"}});
    make_user(*server_, "hasty");
    open(server_->address());
  }
  static void TearDownTestSuite() { server_.reset(); }

  /// What a try is told while somebody else keeps the name's lock.
  static told while_name_is_kept(const std::string& setting) {
    server_->rows("ALTER ROLE hasty RESET ALL; ALTER ROLE hasty SET " + setting);
    auto options = quick();
    options.request_timeout = 5s;
    options.store_patience = 200ms;
    mutex lock{open(with_user(*server_, "hasty"), options), "door", lasting()};
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
  EXPECT_TRUE(trouble.says("55P03")) << trouble.text;
}

TEST_F(Timeouts, OfStatementsAreTold) {
  const auto trouble = while_name_is_kept("statement_timeout = '100ms'");

  EXPECT_EQ(trouble.code, errc::unavailable);
  EXPECT_TRUE(trouble.says("57014")) << trouble.text;
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

}  // namespace
}  // namespace sallyport::postgres_live
