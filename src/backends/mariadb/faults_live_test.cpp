#include "backends/mariadb/test_live_store.hpp"

#include <memory>
#include <string>

// What callers are told when the server does not get on: of time-outs, and of conflicts with others.
namespace sallyport::mariadb_live {
namespace {

class Timeouts : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<mariadb_server>();
    make_user(*server_, "hasty");
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
  EXPECT_TRUE(trouble.says("1205")) << trouble.text;
}

TEST_F(Timeouts, AStatementThatIsKilledMayHaveHappened) {
  const auto trouble = while_name_is_kept([] { kill_all(*server_, "QUERY", "hasty"); });

  EXPECT_EQ(trouble.code, errc::outcome_unknown) << trouble.text;
  // Nothing of it stays open.
  EXPECT_TRUE(stripe_is_free(*server_, "door"));
}

TEST_F(Timeouts, AConnectionThatIsKilledMayHaveDoneIt) {
  const auto trouble = while_name_is_kept([] { kill_all(*server_, "CONNECTION", "hasty"); });

  EXPECT_EQ(trouble.code, errc::outcome_unknown) << trouble.text;
}

TEST_F(Timeouts, OfStatementsAreTold) {
  server_->rows("SET GLOBAL max_statement_time = 0.3");
  const auto trouble = while_name_is_kept([] {});
  server_->rows("SET GLOBAL max_statement_time = 0");

  EXPECT_EQ(trouble.code, errc::outcome_unknown) << trouble.text;
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
