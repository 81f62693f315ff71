#include "fence/test_live_optimistic.hpp"
#include "tests/kit/fault_proxy.hpp"
#include "tests/kit/mariadb_server.hpp"
#include "tests/kit/sql_executors.hpp"
#include <sallyport/optimistic.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace sallyport::optimistic {
namespace {

struct mariadb_world {
  using connection = kit::mariadb_executor;
  static constexpr const char* table_options = " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4";
  static constexpr const char* text_type = "longtext";
  static constexpr const char* bytes_type = "longblob";

  static void start() { server() = std::make_unique<kit::mariadb_server>(); }
  static void stop() { server().reset(); }
  static std::uint16_t port() { return server()->port(); }
  static std::unique_ptr<connection> connect(std::uint16_t port) {
    return std::make_unique<connection>(kit::mariadb_executor_options{.port = port});
  }
  static bool is_conflict(const kit::sql_error& error) {
    return error.state() == "40001" || says(error, "Lock wait timeout") ||
           says(error, "Record has changed");
  }
  static bool is_loss(const kit::sql_error& error) {
    return says(error, "Lost connection") || says(error, "gone away") ||
           error.state().starts_with("08");
  }

 private:
  static bool says(const kit::sql_error& error, std::string_view what) {
    return std::string_view(error.what()).find(what) != std::string_view::npos;
  }
  static std::unique_ptr<kit::mariadb_server>& server() {
    static std::unique_ptr<kit::mariadb_server> kept;
    return kept;
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Mariadb, OptimisticRows, mariadb_world);

class OptimisticMariadb : public OptimisticRows<mariadb_world> {
 protected:
  void SetUp() override {
    OptimisticRows::SetUp();
    database_.run("DROP TABLE IF EXISTS texts");
    database_.run(
        "CREATE TABLE texts (k varchar(50) PRIMARY KEY, t text, version bigint NOT NULL, writers "
        "varchar(256) CHARACTER SET ascii) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4");
    database_.run("INSERT INTO texts VALUES ('a', 'before', 1, NULL)");
  }
  static table texts() {
    return table{sql::dialect::mariadb,
                 {.table = "texts", .key = "k", .values = {"t"}, .writers = "writers"}};
  }
};

TEST_F(OptimisticMariadb, TellsWhichTextItCanNotKeep) {
  EXPECT_THROW((void)update(database_.executor(), texts(), "a",
                            [&](const values&) { return change{.values = {"\xff\xfe"}}; }),
               kit::sql_error);
  EXPECT_EQ(database_.number("SELECT version FROM texts"), 1);
}

TEST_F(OptimisticMariadb, FindsItsWriteAfterTheNetworkTookTheAnswer) {
  kit::fault_proxy network{mariadb_world::port()};
  session<mariadb_world> far{network.port()};
  // The value, which travels when the statement is carried out, not when it is prepared.
  network.set(kit::flow::to_client, kit::fault::drop_reply(kit::ending::reset, "marked"));

  const outcome done = update(far.executor(), texts(), "a",
                              [](const values&) { return change{.values = {"marked"}}; });

  EXPECT_EQ(network.counts().replies_dropped, 1U);
  EXPECT_TRUE(done);
  EXPECT_EQ(done.version, 2);
  EXPECT_EQ(done.attempts, 2U);
  EXPECT_EQ(done.conflicts, 0U);
  EXPECT_EQ(database_.number("SELECT version FROM texts"), 2);
}

TEST_F(OptimisticMariadb, SettlesWhatAConnectionThatWasKilledLeftOpen) {
  kit::mariadb_executor own{{.port = mariadb_world::port()}};
  const auto write = pending_after([&] {
    (void)update(
        [&](const sql::statement& one) {
          if (!is_write(one)) return own(one);
          own.run("START TRANSACTION");
          own(one);
          // Written, not committed, and then nobody is there any more.
          database_.run("KILL " + std::to_string(own.connection()));
          throw sql::connection_lost("killed");
        },
        texts(), "a", [](const values&) { return change{.values = {"after"}}; },
        {.most_attempts = 1});
  });

  ASSERT_TRUE(write);
  EXPECT_EQ(settle(database_.executor(), texts(), *write), settlement::not_written);
  EXPECT_EQ(database_.run("SELECT t FROM texts").rows.at(0).at(0), sql::value{"before"});
}

// Why update() must not run inside a transaction: what it has read it goes on reading.
TEST_F(OptimisticMariadb, NeverCatchesUpInsideATransaction) {
  database_.run("START TRANSACTION");
  EXPECT_EQ(database_.number("SELECT n FROM counters"), 5);
  add_tens(1);
  options how = at_once();
  how.most_attempts = 4;

  const outcome inside = update(database_.executor(), counters(), "a", add_one, how);
  database_.run("ROLLBACK");
  const outcome outside = update(database_.executor(), counters(), "a", add_one, how);

  EXPECT_EQ(inside.is, outcome::kind::gave_up);
  EXPECT_EQ(inside.conflicts, 4U);
  EXPECT_TRUE(outside);
  EXPECT_EQ(n(), 16);
}

TEST_F(OptimisticMariadb, NeedsNoClientFoundRows) {
  // Rows that keep their values do not count as changed there, but a version never keeps its own.
  kit::mariadb_executor plain{{.port = mariadb_world::port(), .found_rows = false}};

  const outcome done = update(plain.executor(), counters(), "a", [](const values& read) {
    return change{.values = {number_in(read)}};
  });

  EXPECT_TRUE(done);
  EXPECT_EQ(done.version, 101);
}

}  // namespace
}  // namespace sallyport::optimistic
