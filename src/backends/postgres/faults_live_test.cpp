#include "backends/postgres/test_live_store.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

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

// ---- requests that were cut off --------------------------------------------------------------------

/// Who wants the same lock.
struct other_client {
  std::chrono::milliseconds request_timeout;
  bool pooled;
};

/// A client whose next acquire of "door" reaches the server without its last bytes: the call is
/// executed, and the end of its transaction never comes. The connection stays open.
class CutCall : public testing::TestWithParam<other_client> {
 protected:
  CutCall() : proxy_(server_.port()) {}

  /// What one acquire says, once its statement is prepared.
  std::uint64_t bytes_of_an_acquire(mutex& lock) {
    const auto sent = [&] { return proxy_.counts().total.read_from_client; };
    const auto before = sent();
    auto held = lock.try_acquire();
    const auto after = sent();
    EXPECT_TRUE(held);
    held.reset();
    return after - before;
  }

  /// Returns when the server has executed what it got of it.
  void cut(mutex& lock, std::unique_ptr<waiter>& asking) {
    // The first one also prepares, and a sweep may follow it.
    std::uint64_t whole = bytes_of_an_acquire(lock);
    ASSERT_TRUE(kit::eventually([&] {
      const auto before = std::exchange(whole, bytes_of_an_acquire(lock));
      return whole == before;
    }));
    proxy_.set(flow::to_server, fault::cut_after(whole - 5, kit::ending::silence));
    asking = std::make_unique<waiter>(lock);
    ASSERT_TRUE(kit::eventually([&] {
      return server_.value(
                 "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = "
                 "'advisory' AND granted AND state = 'active' AND wait_event = 'ClientRead'") ==
             "1";
    }));
  }

  static client_options patient(std::chrono::milliseconds request_timeout) {
    auto options = quick();
    options.request_timeout = request_timeout;
    return options;
  }

  postgres_server server_;
  fault_proxy proxy_;
};

TEST_P(CutCall, KeepsItsNameForSecondsOnly) {
  mutex cut_off{open(postgres_server::address_at(proxy_.port()), patient(60s)), "door", lasting()};
  const kit::pgbouncer pooler{server_, "transaction", 4};
  mutex other{open(GetParam().pooled ? pooler.address() : server_.address(),
                   patient(GetParam().request_timeout)),
              "door", lasting()};
  std::unique_ptr<waiter> asking;
  cut(cut_off, asking);
  proxy_.refuse_connections();  // or it would be in again before the other one asks

  // A few seconds; more on a busy machine, and for ever if nobody ended it.
  auto got = other.try_acquire_for(20s);

  ASSERT_TRUE(got);
  // Nothing of what was cut off has happened, and its client goes on with a new connection.
  EXPECT_FALSE(asking->done());
  proxy_.accept_connections();
  EXPECT_EQ(got->release(), release_result::released);
  auto later = asking->get();
  ASSERT_TRUE(later);
  EXPECT_GT(later->token(), got->token());
  later->release();
}

// The server's lock_timeout ends the others' calls, or their own patience does before.
INSTANTIATE_TEST_SUITE_P(ForOthers, CutCall,
                         testing::Values(other_client{5s, false}, other_client{1s, false},
                                         other_client{1s, true}));

/// Milliseconds until the kernel looks after the peer of the server's end of a connection, for the one
/// for which it does so last; nothing: for one of them it never does.
std::optional<long> longest_keep_alive_ms(std::uint16_t server_port) {
  std::ifstream connections("/proc/net/tcp");
  std::string line;
  std::optional<long> longest;
  while (std::getline(connections, line)) {
    unsigned long port = 0;
    unsigned state = 0;
    unsigned timer = 0;
    unsigned long ticks = 0;
    const bool read = std::sscanf(line.c_str(), " %*u: %*8x:%4lx %*8x:%*4x %2x %*8x:%*8x %2x:%8lx",
                                  &port, &state, &timer, &ticks) == 4;
    if (!read || port != server_port || state != 1) continue;  // established
    if (timer != 2) return std::nullopt;
    longest = std::max(longest.value_or(0), static_cast<long>(ticks * 10));
  }
  return longest;
}

TEST(Connections, AreLookedAfterByTheServerSoon) {
  const postgres_server server;
  mutex lock{open(server.address()), "door", lasting()};
  auto held = lock.acquire();

  // A connection with bytes on their way has another timer.
  EXPECT_TRUE(kit::eventually(
      [&] { return longest_keep_alive_ms(server.port()).value_or(3'600'000) <= 10'000; }));
  held.release();
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
