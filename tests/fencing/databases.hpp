#pragma once

#include "fence/gate_testing.hpp"
#include "tests/kit/mariadb_server.hpp"
#include "tests/kit/postgres_server.hpp"
#include "tests/kit/sql_executors.hpp"
#include <sallyport/error.hpp>
#include <sallyport/fence_sql.hpp>
#include <sallyport/sql.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

// What the tests of the gates for databases share: one server of each kind, and connections to it.

namespace sallyport::fence {

inline std::ostream& operator<<(std::ostream& out, row_verdict answer) {
  return out << to_string(answer);
}

/// One connection of whatever database is tested. Copies share it.
struct connection {
  std::shared_ptr<void> owner;
  sql::executor execute;
  sql::dialect whose;

  sql::answer operator()(const sql::statement& one) const { return execute(one); }
  sql::answer run(const std::string& text) const {
    return execute({.text = text, .parameters = {}});
  }
  std::int64_t number(const std::string& text) const { return kit::first_number(run(text)); }
};

template <class Executor, class Where>
connection connect_to(const Where& where) {
  auto made = std::make_shared<Executor>(where);
  return {made, made->executor(), Executor::dialect()};
}

/// The servers live as long as the program: they are started by its main thread.
class databases {
 public:
  static kit::postgres_server& postgres() {
    static kit::postgres_server server;
    return server;
  }
  static kit::mariadb_server& mariadb() {
    static kit::mariadb_server server;
    return server;
  }

  static connection connect(sql::dialect whose, const std::string& sqlite_file = "") {
    switch (whose) {
      case sql::dialect::postgres:
        return connect_to<kit::postgres_executor>(postgres().address());
      case sql::dialect::mariadb:
        return connect_to<kit::mariadb_executor>(
            kit::mariadb_executor_options{.port = mariadb().port()});
      case sql::dialect::sqlite:
        break;
    }
    connection made = connect_to<kit::sqlite_executor>(sqlite_file);
    made.run("PRAGMA synchronous = OFF");  // no test cuts the power
    return made;
  }
};

/// The SQLSTATE with which the database refuses `attempt`; "" when it does not.
inline std::string state_of(const std::function<void()>& attempt) {
  try {
    attempt();
  } catch (const kit::sql_error& error) {
    return error.state();
  }
  return "";
}

/// The code of the lock_error with which `attempt` fails; zero when it does not.
inline errc code_of(const std::function<void()>& attempt) {
  try {
    attempt();
  } catch (const lock_error& error) {
    return static_cast<errc>(error.code().value());
  }
  return errc{};
}

/// Whether an error says: start the transaction again.
inline bool asks_for_another_try(const std::string& state) {
  return state == "40001" || state == "40P01" || state == "HY000";
}

/// Runs for each database; a fresh set of tables for each test.
class OnDatabase : public testing::TestWithParam<sql::dialect>, protected test_folder {
 protected:
  void SetUp() override {
    const connection database = connect();
    for (const char* table : {"sallyport_fence", "accounts", "log"}) {
      database.run("DROP TABLE IF EXISTS " + std::string(table));
    }
    for (const auto& each : sql_gate::schema(GetParam())) database(each);
    database.run("CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint, fence bigint)");
    database.run("INSERT INTO accounts VALUES (42, 100, 0)");
    // Numbered by whoever writes: what a database numbers need not be in the order of commits.
    database.run("CREATE TABLE log (at bigint PRIMARY KEY, token bigint)");
  }

  connection connect() const { return databases::connect(GetParam(), at("database")); }
  static bool is(sql::dialect whose) { return GetParam() == whose; }

  /// lock, W and S, as the database has them; empty when there is no row.
  static std::vector<std::string> numbers_of(const connection& database,
                                             const std::string& resource) {
    const auto rows =
        database({.text = "SELECT lock_name, newest_exclusive, newest_shared FROM sallyport_fence "
                          "WHERE resource = " +
                          sql::placeholder(GetParam(), 1),
                  .parameters = {resource}})
            .rows;
    if (rows.empty()) return {};
    return {std::get<std::string>(rows[0].at(0)), std::to_string(kit::number_of(rows[0].at(1))),
            std::to_string(kit::number_of(rows[0].at(2)))};
  }

  static std::int64_t balance(const connection& database) {
    return database.number("SELECT balance FROM accounts WHERE id = 42");
  }

  /// Until somebody waits for a lock of a row.
  [[nodiscard]] static bool somebody_waits() {
    return kit::eventually([] {
      return is(sql::dialect::postgres)
                 ? databases::postgres().value(
                       "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") !=
                       "0"
                 : databases::mariadb().value(
                       "SELECT variable_value FROM information_schema.global_status "
                       "WHERE variable_name = 'Innodb_row_lock_current_waits'") != "0";
    });
  }
};

inline std::string name_of(const testing::TestParamInfo<sql::dialect>& one) {
  switch (one.param) {
    case sql::dialect::postgres:
      return "postgres";
    case sql::dialect::mariadb:
      return "mariadb";
    case sql::dialect::sqlite:
      return "sqlite";
  }
  return "unknown";
}

}  // namespace sallyport::fence
