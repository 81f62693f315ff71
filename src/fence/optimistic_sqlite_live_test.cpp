#include "fence/test_live_optimistic.hpp"
#include "tests/kit/sql_executors.hpp"
#include "tests/kit/temporary_folder.hpp"
#include <sallyport/optimistic.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

namespace sallyport::optimistic {
namespace {

/// A file in the write-ahead mode that programs with several writers use.
struct sqlite_world {
  using connection = kit::sqlite_executor;
  static constexpr const char* table_options = "";
  static constexpr const char* text_type = "text";
  static constexpr const char* bytes_type = "blob";

  static void start() {
    folder() = std::make_unique<kit::temporary_folder>("sqlite");
    connect(0)->run("PRAGMA journal_mode = WAL");
  }
  static void stop() { folder().reset(); }
  static std::uint16_t port() { return 0; }
  static std::unique_ptr<connection> connect(std::uint16_t) {
    return std::make_unique<connection>(folder()->path() / "rows.db");
  }
  static bool is_conflict(const kit::sql_error& error) {
    // SQLITE_BUSY, SQLITE_LOCKED and what extends them.
    constexpr int busy = 5;
    constexpr int locked = 6;
    const int code = std::stoi(error.state().substr(sizeof("sqlite"))) & 0xff;
    return code == busy || code == locked;
  }
  static bool is_loss(const kit::sql_error&) { return false; }

 private:
  static std::unique_ptr<kit::temporary_folder>& folder() {
    static std::unique_ptr<kit::temporary_folder> kept;
    return kept;
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Sqlite, OptimisticRows, sqlite_world);

TEST(OptimisticSqlite, WaitsOutAWriterThatKeepsTheDatabase) {
  sqlite_world::start();
  session<sqlite_world> database;
  database.run("CREATE TABLE counters (name text PRIMARY KEY, n bigint, version bigint NOT NULL)");
  database.run("INSERT INTO counters VALUES ('a', 5, 1)");
  session<sqlite_world> other;
  other.run("BEGIN IMMEDIATE");
  const table counters{sql::dialect::sqlite, {.table = "counters", .key = "name", .values = {"n"}}};
  // Does not wait inside of sqlite: what is tested is the loop.
  database.run("PRAGMA busy_timeout = 1");
  int decisions = 0;

  const outcome done = update(
      database.executor(), counters, "a",
      [&](const values& read) {
        if (++decisions == 3) other.run("ROLLBACK");
        return add_one(read);
      },
      at_once());

  EXPECT_TRUE(done);
  EXPECT_EQ(done.conflicts, 2U);
  sqlite_world::stop();
}

}  // namespace
}  // namespace sallyport::optimistic
