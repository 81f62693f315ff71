#include "tests/kit/sql_executors.hpp"

#include "tests/kit/mariadb_server.hpp"
#include "tests/kit/postgres_server.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <variant>

namespace sallyport::kit {
namespace {

/// Every kind of value there and back, exactly, and what counts as changed.
template <class Executor>
void keeps_values(Executor& database, const std::string& bytes_type) {
  const auto mark = [](std::size_t index) { return sql::placeholder(Executor::dialect(), index); };
  const std::string bytes("a\0b'\"\\\x7f", 7);
  const std::int64_t large = std::numeric_limits<std::int64_t>::max() - 1;
  database.run("CREATE TABLE kept (id bigint, t varchar(50), b " + bytes_type + ")");

  const sql::answer inserted = database(
      {.text = "INSERT INTO kept VALUES (" + mark(1) + ", " + mark(2) + ", " + mark(3) + ")",
       .parameters = {large, std::string("täxt"), bytes}});
  database({.text = "INSERT INTO kept VALUES (" + mark(1) + ", " + mark(2) + ", " + mark(3) + ")",
            .parameters = {std::int64_t{-1}, std::monostate{}, std::monostate{}}});
  const sql::answer unchanged =
      database({.text = "UPDATE kept SET id = " + mark(1) + " WHERE id = " + mark(2),
                .parameters = {large, large}});
  const sql::answer none =
      database({.text = "UPDATE kept SET id = 5 WHERE id = " + mark(1), .parameters = {large - 1}});
  const sql::answer read = database.run("SELECT id, t, b FROM kept ORDER BY id");

  EXPECT_EQ(inserted.changed, 1U);
  EXPECT_EQ(unchanged.changed, 1U);
  EXPECT_EQ(none.changed, 0U);
  EXPECT_EQ(read.changed, 0U);
  ASSERT_EQ(read.rows.size(), 2U);
  EXPECT_EQ(read.rows[0],
            (std::vector<sql::value>{std::int64_t{-1}, std::monostate{}, std::monostate{}}));
  EXPECT_EQ(read.rows[1], (std::vector<sql::value>{large, std::string("täxt"), bytes}));
  EXPECT_THROW(database.run("SELECT nonsense"), sql_error);
  EXPECT_EQ(first_number(database.run("SELECT count(*) FROM kept")), 2);
}

TEST(SqlExecutors, CarryValuesOfPostgresExactly) {
  const postgres_server server;
  postgres_executor database{server.address()};
  keeps_values(database, "bytea");
  try {
    database.run("SELECT 1 / 0");
    FAIL();
  } catch (const sql_error& error) {
    EXPECT_EQ(error.state(), "22012");
  }
}

TEST(SqlExecutors, CarryValuesOfMariadbExactly) {
  const mariadb_server server;
  mariadb_executor database{{.port = server.port()}};
  keeps_values(database, "varbinary(50)");
  database.run("SET @kept = 5");
  database.reset();
  EXPECT_EQ(database.run("SELECT @kept").rows.at(0).at(0), sql::value{});
}

TEST(SqlExecutors, CarryValuesOfSqliteExactly) {
  sqlite_executor database{":memory:"};
  keeps_values(database, "blob");
}

}  // namespace
}  // namespace sallyport::kit
