#include "backends/mariadb/test_live_store.hpp"
#include "base/descriptor.hpp"

#include <arpa/inet.h>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <vector>

// What becomes of locks when the server restarts, stands still, ends connections or does not get on.
namespace sallyport::mariadb_live {
namespace {

// ---- the server goes and comes -------------------------------------------------------------------

TEST(Restart, CleanOrNotKeepsLocksAndLetsRenewalsGoOn) {
  mariadb_server server;
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
  mariadb_server server;
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

TEST(Connections, AreAtMostTwoForTwoHundredWaiters) {
  const mariadb_server server;
  const auto owner = open(server.address());
  server.rows("CREATE USER crowd");
  server.rows("GRANT ALL ON test.* TO crowd");
  std::vector<lease> held;
  for (int i = 0; i < 200; ++i) {
    mutex blocker{owner, "door " + std::to_string(i), lasting()};
    held.push_back(blocker.acquire());
  }
  auto options = quick();
  options.heartbeat = 2s;
  const auto crowd = open(with_user(server, "crowd"), options);
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

  EXPECT_LE(std::stoi(connections_of(server, "crowd")), 2);
  for (auto& each : waiters) each->cancel();
  ASSERT_TRUE(waiters_become(server, 0));
  held.clear();
  waiters.clear();
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(Connections, ThatTheServerEndsAreMadeAgainAndNothingIsLost) {
  const mariadb_server server;
  server.rows("CREATE USER victim");
  server.rows("GRANT ALL ON test.* TO victim");
  mutex lock{open(with_user(server, "victim")), "door", lasting()};
  mutex wanted{open(with_user(server, "victim")), "door", lasting()};
  auto held = lock.acquire();
  waiter next(wanted);
  ASSERT_TRUE(waiters_become(server, 1));

  kill_all(server, "CONNECTION", "victim");

  EXPECT_EQ(held.release(), release_result::released);
  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_EQ(got->release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(LostAnswer, OfAnAcquireIsTheSameGrant) {
  const mariadb_server server;
  fault_proxy network{server.port()};
  const auto store = open(mariadb_server::address_at(network.port()));
  mutex lock{store, "door", lasting()};
  lock.acquire().release();

  network.set(flow::to_client, fault::drop_reply(kit::ending::reset, "acquire"));
  auto held = lock.acquire();

  EXPECT_EQ(server.value("SELECT first_token FROM sallyport_lock"),
            std::to_string(held.token().value()));
  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(server));
}

/// A port where connections are made and nobody says anything.
class silent_port {
 public:
  silent_port() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    where_.sin_family = AF_INET;
    where_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where_;
    const bool listens = ::bind(socket_.number(), address(), size) == 0 &&
                         ::listen(socket_.number(), 64) == 0 &&
                         ::getsockname(socket_.number(), address(), &size) == 0;
    EXPECT_TRUE(listens);
  }
  [[nodiscard]] std::uint16_t number() const { return ntohs(where_.sin_port); }

 private:
  sockaddr* address() { return reinterpret_cast<sockaddr*>(&where_); }

  base::descriptor socket_;
  sockaddr_in where_{};
};

TEST(Connecting, ToSomebodyWhoNeverAnswersLeavesNothingOpen) {
  const silent_port nobody;
  const auto open_files = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  auto options = quick();
  options.store_patience = 200ms;
  const auto attempt = [&] {
    const auto store =
        open(mariadb_server::address_at(nobody.number()) + "?connect_timeout=1", options);
    mutex lock{store, "door", lasting()};
    EXPECT_EQ(error_of([&] { static_cast<void>(lock.try_acquire()); }).code, errc::unavailable);
  };
  attempt();
  const auto before = open_files();

  attempt();

  EXPECT_EQ(open_files(), before);
}

// ---- time-outs and conflicts ---------------------------------------------------------------------

class Timeouts : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<mariadb_server>();
    server_->rows("CREATE USER hasty");
    server_->rows("GRANT ALL ON test.* TO hasty");
    open(server_->address());
  }
  static void TearDownTestSuite() { server_.reset(); }

  /// What a try is told while somebody else keeps the name. `meanwhile` happens as soon as it waits.
  template <class Meanwhile>
  static told while_name_is_kept(Meanwhile meanwhile) {
    auto options = quick();
    options.request_timeout = 5s;
    options.store_patience = 200ms;
    mutex lock{open(with_user(*server_, "hasty"), options), "door", lasting()};
    mariadb_probe keeper{{.port = server_->port()}};
    keeper.rows("START TRANSACTION");
    keeper.rows("SELECT * FROM sallyport_stripe WHERE id = " + stripe_of("door") + " FOR UPDATE");
    background<told> attempt(
        [&] { return error_of([&] { static_cast<void>(lock.try_acquire()); }); });
    EXPECT_TRUE(row_is_waited_for(*server_));
    meanwhile();
    auto trouble = attempt.get();
    keeper.rows("ROLLBACK");
    auto held = lock.acquire();
    EXPECT_EQ(held.release(), release_result::released);
    return trouble;
  }

  static std::unique_ptr<mariadb_server> server_;
};
std::unique_ptr<mariadb_server> Timeouts::server_;

TEST_F(Timeouts, OfRowsAreTold) {
  const auto trouble = while_name_is_kept([] {});

  EXPECT_EQ(trouble.code, errc::unavailable);
  EXPECT_TRUE(trouble.says("1205")) << trouble.words;
}

TEST_F(Timeouts, AStatementThatIsKilledMayHaveHappened) {
  const auto trouble = while_name_is_kept([] { kill_all(*server_, "QUERY", "hasty"); });

  EXPECT_EQ(trouble.code, errc::outcome_unknown) << trouble.words;
  // Nothing of it stays open.
  EXPECT_TRUE(stripe_is_free(*server_, "door"));
}

TEST_F(Timeouts, AConnectionThatIsKilledMayHaveDoneIt) {
  const auto trouble = while_name_is_kept([] { kill_all(*server_, "CONNECTION", "hasty"); });

  EXPECT_EQ(trouble.code, errc::outcome_unknown) << trouble.words;
}

TEST_F(Timeouts, OfStatementsAreTold) {
  server_->rows("SET GLOBAL max_statement_time = 0.3");
  const auto trouble = while_name_is_kept([] {});
  server_->rows("SET GLOBAL max_statement_time = 0");

  EXPECT_EQ(trouble.code, errc::outcome_unknown) << trouble.words;
  EXPECT_TRUE(stripe_is_free(*server_, "door"));
}

TEST_F(Timeouts, ADeadlockIsNotSeenByTheCaller) {
  mutex lock{open(server_->address()), "deadly", lasting()};
  auto held = lock.acquire();
  // The release has the name and waits for the row; the other has the row and wants the name.
  mariadb_probe other{{.port = server_->port()}};
  other.rows("START TRANSACTION");
  // What is heavier is not the victim.
  other.rows("UPDATE sallyport_stripe SET place = place + 1 WHERE id >= 1000 AND id <> " +
             stripe_of("deadly"));
  other.rows("SELECT * FROM sallyport_lock WHERE name = 'deadly' FOR UPDATE");
  background<release_result> release([&] { return held.release(); });
  ASSERT_TRUE(row_is_waited_for(*server_));

  other.rows("SELECT * FROM sallyport_stripe WHERE id = (" + stripe_of("deadly") + ") FOR UPDATE");
  other.rows("ROLLBACK");

  EXPECT_EQ(release.get(), release_result::released);
  EXPECT_GE(std::stoi(server_->rows("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").front()[1]), 1);
}

}  // namespace
}  // namespace sallyport::mariadb_live
