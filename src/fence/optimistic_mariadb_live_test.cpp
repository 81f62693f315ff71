#include "fence/test_live_optimistic_server.hpp"
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

struct mariadb_world : server_world<kit::mariadb_server> {
  using connection = kit::mariadb_executor;
  static constexpr const char* table_options = " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4";
  static constexpr const char* writers_type = "varchar(256) CHARACTER SET ascii";
  static constexpr const char* text_type = "longtext";
  static constexpr const char* bytes_type = "longblob";

  static std::unique_ptr<connection> connect(std::uint16_t port) {
    return std::make_unique<connection>(kit::mariadb_executor_options{.port = port});
  }
  /// The statement that ends this connection.
  static std::string end_of(const connection& other) {
    return "KILL " + std::to_string(other.connection());
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
};

INSTANTIATE_TYPED_TEST_SUITE_P(Mariadb, OptimisticRows, mariadb_world);
INSTANTIATE_TYPED_TEST_SUITE_P(Mariadb, OptimisticRowsFarAway, mariadb_world);

class OptimisticMariadb : public OptimisticRowsFarAway<mariadb_world> {};

TEST_F(OptimisticMariadb, TellsWhichTextItCanNotKeep) {
  EXPECT_THROW((void)update(database_.executor(), texts(), "a",
                            [&](const values&) { return change{.values = {"\xff\xfe"}}; }),
               kit::sql_error);
  EXPECT_EQ(database_.number("SELECT version FROM texts"), 1);
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
