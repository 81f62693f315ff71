#include "base/random.hpp"
#include "fence/gate_state.hpp"
#include "tests/fencing/databases.hpp"
#include "tests/kit/temporary_folder.hpp"
#include <sallyport/fence_sql.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sallyport::fence {
namespace {

using sql::dialect;

/// Stands in for sallyport::lease: all that a gate asks of one.
struct fake_lease {
  std::uint64_t token;
  pass fence_pass() const { return {.lock = "orders", .token = fencing_token{token}}; }
};

/// The table `accounts` guards itself, as one resource or row by row.
class SqlTriggers : public OnDatabase {
 protected:
  void SetUp() override {
    OnDatabase::SetUp();
    fence_accounts({.table = "accounts"});
  }

  void fence_accounts(const sql_trigger_options& options) {
    const connection database = connect();
    for (const auto& each : sql_trigger_ddl(GetParam(), options)) database(each);
  }

  /// One statement in a transaction of its own, under a pass. The SQLSTATE of a refusal, or "".
  static std::string write(const connection& database, const pass& shown, const std::string& text) {
    return state_of([&] {
      database.run("BEGIN");
      try {
        database(declare_pass(GetParam(), shown));
        database.run(text);
        database.run("COMMIT");
      } catch (const kit::sql_error&) {
        database.run("ROLLBACK");
        throw;
      }
    });
  }

  static std::string message_of(const std::function<void()>& attempt) {
    try {
      attempt();
    } catch (const kit::sql_error& error) {
      return error.what();
    }
    return "";
  }
};

INSTANTIATE_TEST_SUITE_P(On, SqlTriggers, testing::Values(dialect::postgres, dialect::mariadb),
                         name_of);

TEST_P(SqlTriggers, RefuseAClientThatForgot) {
  const connection database = connect();
  std::vector<std::string> forgetful{"INSERT INTO accounts VALUES (43, 1, 0)",
                                     "UPDATE accounts SET balance = 70", "DELETE FROM accounts",
                                     "INSERT INTO accounts SELECT id + 1, 1, 0 FROM accounts"};
  if (is(dialect::postgres)) {
    forgetful.emplace_back("TRUNCATE accounts");
    forgetful.emplace_back("UPDATE accounts SET balance = 1 WHERE id = 0");
    forgetful.emplace_back(
        "INSERT INTO accounts VALUES (42, 1, 0) ON CONFLICT (id) DO UPDATE SET balance = 1");
  } else {
    forgetful.emplace_back("REPLACE INTO accounts VALUES (42, 1, 0)");
    forgetful.emplace_back(
        "INSERT INTO accounts VALUES (42, 1, 0) ON DUPLICATE KEY UPDATE balance = 1");
  }

  for (const std::string& each : forgetful) {
    EXPECT_EQ(state_of([&] { database.run(each); }), sql_state::no_pass) << each;
  }

  EXPECT_EQ(balance(database), 100);
  EXPECT_EQ(database.number("SELECT count(*) FROM accounts"), 1);
  const std::string said = message_of([&] { database.run("DELETE FROM accounts"); });
  EXPECT_NE(said.find("accounts"), std::string::npos) << said;
  EXPECT_NE(
      said.find(is(dialect::postgres) ? "set_config('sallyport.pass'" : "SET @sallyport_pass"),
      std::string::npos)
      << said;
}

// docs/fencing.md shows this code.
TEST_P(SqlTriggers, RefuseTheLostUpdate) {
  const fake_lease first{33};
  const fake_lease second{34};
  const connection database = connect();
  const auto your_database = GetParam();

  const auto seen_by_first = balance(database);
  database.run("BEGIN");
  database(declare_pass(your_database, second));
  database.run("UPDATE accounts SET balance = balance + 50 WHERE id = 42");
  database.run("COMMIT");
  database(withdraw_pass(your_database));
  const std::string refused =
      write(database, first.fence_pass(),
            "UPDATE accounts SET balance = " + std::to_string(seen_by_first - 30));

  EXPECT_EQ(refused, sql_state::stale);
  EXPECT_EQ(balance(database), 150);
}

TEST_P(SqlTriggers, JudgeAsTheRuleSays) {
  base::random random{29};
  const connection database = connect();
  for (int round = 0; round < 20; ++round) {
    const std::uint64_t base = round % 3 == 0   ? 1
                               : round % 3 == 1 ? (std::uint64_t{1} << 53U) - 3
                                                : sql_gate::max_token - 11;
    const std::string name = "round " + std::to_string(round);
    fence_accounts({.table = "accounts", .resource_column = {}, .resource = name});
    gate_state model;
    for (int step = 0; step < 25; ++step) {
      const pass shown{.lock = random.chance(0.1) ? "orders " : "orders",
                       .token = fencing_token{base + random.below(12)},
                       .mode = random.chance(0.5) ? lock_mode::exclusive : lock_mode::shared};
      const verdict expected = model.judge(shown);
      if (expected == verdict::passed) model.raise(shown);

      const std::string refused =
          write(database, shown, "UPDATE accounts SET balance = balance + 1");

      ASSERT_EQ(refused, expected == verdict::passed  ? ""
                         : expected == verdict::stale ? sql_state::stale
                                                      : sql_state::wrong_lock)
          << "round " << round << ", step " << step;
      ASSERT_EQ(
          numbers_of(database, name),
          (std::vector<std::string>{model.lock, std::to_string(model.newest_exclusive.value()),
                                    std::to_string(model.newest_shared.value())}));
    }
  }
}

TEST_P(SqlTriggers, ShareTheirNumbersWithAGate) {
  const connection database = connect();
  const sql_gate gate{GetParam(), "accounts", {.declares_pass = true}};

  EXPECT_EQ(gate.run(database, exclusive(7),
                     [&] { database.run("UPDATE accounts SET balance = balance + 50"); }),
            verdict::passed);
  EXPECT_EQ(write(database, exclusive(6), "DELETE FROM accounts"), sql_state::stale);
  EXPECT_EQ(write(database, exclusive(8), "UPDATE accounts SET balance = 1"), "");
  EXPECT_EQ(gate.run(database, exclusive(7), [&] { database.run("DELETE FROM accounts"); }),
            verdict::stale);

  EXPECT_EQ(balance(database), 1);
}

TEST_P(SqlTriggers, EndAPassWithItsTransaction) {
  const connection database = connect();
  const sql_gate gate{GetParam(), "accounts", {.declares_pass = true}};
  const auto forgetful = [&] {
    return state_of([&] { database.run("UPDATE accounts SET balance = 1"); });
  };

  EXPECT_EQ(gate.run(database, exclusive(7), nothing), verdict::passed);
  EXPECT_EQ(forgetful(), sql_state::no_pass);
  EXPECT_THROW((void)gate.run(database, exclusive(7), [] { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_EQ(forgetful(), sql_state::no_pass);

  EXPECT_EQ(write(database, exclusive(7), "UPDATE accounts SET balance = 2"), "");
  if (is(dialect::mariadb)) {  // a variable of the session: it has to be taken back
    EXPECT_EQ(forgetful(), "");
    database(withdraw_pass(GetParam()));
  }
  EXPECT_EQ(forgetful(), sql_state::no_pass);
}

TEST_P(SqlTriggers, TakeNoPassThatIsNone) {
  const connection database = connect();
  const auto declare = [&](const std::string& words) {
    database.run("BEGIN");
    database({.text = is(dialect::postgres) ? "SELECT set_config('sallyport.pass', $1, true)"
                                            : "SET @sallyport_pass = ?",
              .parameters = {words}});
    auto state = state_of([&] { database.run("UPDATE accounts SET balance = 1"); });
    database.run("ROLLBACK");
    return state;
  };

  for (const std::string& bad :
       {std::string("exclusive"), std::string("exclusive 5"), std::string("exclusive 5 "),
        std::string("exclusive x orders"), std::string("exclusive -5 orders"),
        std::string("exclusive 5.0 orders"), std::string("exclusive 0 orders"),
        std::string("exclusive 9223372036854775808 orders"),
        std::string("exclusive 99999999999999999999 orders"), std::string("5 exclusive orders"),
        std::string("Exclusive 5 orders"), std::string("'; DROP TABLE accounts; --")}) {
    EXPECT_EQ(declare(bad), sql_state::bad_pass) << bad;
  }
  EXPECT_EQ(declare(""), sql_state::no_pass);
  EXPECT_EQ(declare("exclusive 9223372036854775807 orders"), "");
  EXPECT_EQ(declare("exclusive 5 a lock's \"name\" \\ with %s"), "");
  EXPECT_EQ(balance(database), 100);
}

TEST_P(SqlTriggers, JudgeRowByRow) {
  const connection database = connect();
  EXPECT_EQ(write(database, exclusive(1), "INSERT INTO accounts VALUES (43, 100, 0)"), "");
  fence_accounts({.table = "accounts", .resource_column = "id"});
  const pass other{.lock = "other", .token = fencing_token{1}};

  EXPECT_EQ(write(database, exclusive(7), "UPDATE accounts SET balance = 1 WHERE id = 42"), "");
  EXPECT_EQ(write(database, other, "UPDATE accounts SET balance = 2 WHERE id = 43"), "");
  EXPECT_EQ(write(database, other, "UPDATE accounts SET balance = 3 WHERE id = 42"),
            sql_state::wrong_lock);
  EXPECT_EQ(write(database, exclusive(6), "DELETE FROM accounts WHERE id = 42"), sql_state::stale);
  EXPECT_EQ(write(database, exclusive(8), "UPDATE accounts SET balance = 4"),
            sql_state::wrong_lock);  // all rows, and one is another lock's
  // A row that moves is judged where it was and where it goes.
  EXPECT_EQ(write(database, exclusive(6), "UPDATE accounts SET id = 44 WHERE id = 42"),
            sql_state::stale);
  EXPECT_EQ(write(database, exclusive(9), "UPDATE accounts SET id = 44 WHERE id = 42"), "");
  EXPECT_EQ(numbers_of(database, "accounts/44"), (std::vector<std::string>{"orders", "9", "0"}));
  EXPECT_EQ(write(database, exclusive(8), "INSERT INTO accounts VALUES (42, 1, 0)"),
            sql_state::stale);  // the row is gone, its number is not
  EXPECT_EQ(numbers_of(database, "accounts/43"), (std::vector<std::string>{"other", "1", "0"}));
  if (is(dialect::postgres)) {
    EXPECT_EQ(write(database, exclusive(99), "TRUNCATE accounts"), sql_state::bad_pass);
  }
  EXPECT_EQ(database.number("SELECT balance FROM accounts WHERE id = 43"), 2);
  EXPECT_EQ(database.number("SELECT balance FROM accounts WHERE id = 44"), 1);
}

TEST_P(SqlTriggers, RefuseARowWithoutAResource) {
  const connection database = connect();
  database.run("DROP TABLE accounts");
  database.run("CREATE TABLE accounts (name varchar(1000), balance bigint)");
  fence_accounts({.table = "accounts", .resource_column = "name", .resource = "a/"});

  EXPECT_EQ(write(database, exclusive(1), "INSERT INTO accounts VALUES (NULL, 1)"),
            sql_state::bad_pass);
  EXPECT_EQ(write(database, exclusive(1),
                  "INSERT INTO accounts VALUES ('" + std::string(254, 'x') + "', 1)"),
            sql_state::bad_pass);
  EXPECT_EQ(write(database, exclusive(1),
                  "INSERT INTO accounts VALUES ('" + std::string(253, 'x') + "', 1)"),
            "");
  EXPECT_EQ(write(database, exclusive(1), "INSERT INTO accounts VALUES ('Ärger ', 1)"), "");
  EXPECT_EQ(numbers_of(database, "a/Ärger "), (std::vector<std::string>{"orders", "1", "0"}));
}

TEST_P(SqlTriggers, JudgeARowAsOthersTriggersHaveLeftIt) {
  fence_accounts({.table = "accounts", .resource_column = "id"});
  const connection database = connect();
  const auto shown = [](std::uint64_t token) {
    return pass{.lock = "orders", .token = fencing_token{token}};
  };
  ASSERT_EQ(write(database, shown(90), "INSERT INTO accounts VALUES (2, 100, 0)"), "");
  // Made later, and with a name that comes behind any of ours.
  if (is(dialect::postgres)) {
    database.run(
        "CREATE OR REPLACE FUNCTION redirect() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN IF NEW.id >= 1000 THEN NEW.id := NEW.id - 1000; END IF; RETURN NEW; END'");
    database.run(
        "CREATE TRIGGER zzzz_redirect BEFORE INSERT OR UPDATE ON accounts FOR EACH ROW "
        "EXECUTE FUNCTION redirect()");
  } else {
    for (const std::string event : {"INSERT", "UPDATE"}) {
      database.run(
          "CREATE TRIGGER zzzz_" + event + " BEFORE " + event +
          " ON accounts FOR EACH ROW SET NEW.id = IF(NEW.id >= 1000, NEW.id - 1000, NEW.id)");
    }
  }
  ASSERT_EQ(write(database, shown(95), "DELETE FROM accounts WHERE id = 2"), "");

  EXPECT_EQ(write(database, shown(5), "INSERT INTO accounts VALUES (1002, 1, 0)"),
            sql_state::stale);
  EXPECT_EQ(write(database, shown(5), "UPDATE accounts SET id = 1002 WHERE id = 42"),
            sql_state::stale);
  if (!is(dialect::postgres)) {
    EXPECT_EQ(write(database, shown(5), "INSERT IGNORE INTO accounts VALUES (1002, 1, 0)"),
              sql_state::stale);
    EXPECT_EQ(write(database, shown(5), "UPDATE IGNORE accounts SET id = 1002 WHERE id = 42"),
              sql_state::stale);
    EXPECT_EQ(write(database, shown(5), "REPLACE INTO accounts VALUES (1002, 1, 0)"),
              sql_state::stale);
  }
  EXPECT_EQ(database.number("SELECT count(*) FROM accounts WHERE id = 2"), 0);
  EXPECT_EQ(write(database, shown(95), "INSERT INTO accounts VALUES (1002, 1, 0)"), "");
}

TEST_P(SqlTriggers, WriteManyRowsUnderOnePass) {
  const connection database = connect();
  std::string rows = "(1, 0, 0)";
  for (int i = 1000; i < 3000; ++i) rows += ", (" + std::to_string(i) + ", 0, 0)";
  fence_accounts({.table = "accounts", .resource_column = "balance"});

  EXPECT_EQ(write(database, exclusive(3), "INSERT INTO accounts VALUES " + rows), "");

  EXPECT_EQ(database.number("SELECT count(*) FROM accounts"), 2002);
  EXPECT_EQ(database.number("SELECT count(*) FROM sallyport_fence"), 1);
}

TEST_P(SqlTriggers, GuardATableOfAnyNameAndCanBeTakenAway) {
  const connection database = connect();
  const sql_trigger_options options{.table = "a \"`'? $fence$ \\ @judge@",
                                    .resource_column = "b \"`'? @gate@",
                                    .resource = "r '\\ \"",
                                    .gate_table = "g \"`'@table@"};
  const std::string table = sql::quoted(GetParam(), options.table);
  database.run("DROP TABLE IF EXISTS " + table);
  database.run("CREATE TABLE " + table + " (" + sql::quoted(GetParam(), options.resource_column) +
               " varchar(50))");
  for (int twice = 0; twice < 2; ++twice) fence_accounts(options);
  const std::string insert = "INSERT INTO " + table + " VALUES ('v')";

  EXPECT_EQ(state_of([&] { database.run(insert); }), sql_state::no_pass);
  EXPECT_EQ(write(database, exclusive(3), insert), "");
  EXPECT_EQ(write(database, exclusive(2), insert), sql_state::stale);
  const sql_gate gate{
      GetParam(), options.resource + "v", {.lock = {}, .table = options.gate_table}};
  EXPECT_EQ(gate.run(database, exclusive(2), nothing), verdict::stale);
  database(withdraw_pass(GetParam()));

  for (const auto& each : sql_trigger_removal(GetParam(), options)) database(each);
  EXPECT_EQ(state_of([&] { database.run(insert); }), "");
  database.run("DROP TABLE " + table);
  if (is(dialect::postgres)) {
    database.run("DROP FUNCTION " + sql::quoted(GetParam(), options.gate_table + "_judge"));
  }
  database.run("DROP TABLE " + sql::quoted(GetParam(), options.gate_table));
}

TEST_P(SqlTriggers, SayWhatCannotBeNamed) {
  const auto code = [](const sql_trigger_options& options) {
    return code_of([&] { (void)sql_trigger_ddl(GetParam(), options); });
  };

  for (const std::string& bad :
       {std::string(), std::string("a\0b", 3), std::string("a\nb"), std::string("\xff"),
        std::string(63, 'x'), std::string(1 << 20, 'x')}) {
    EXPECT_EQ(code({.table = bad}), errc::bad_option);
    EXPECT_EQ(code({.table = "t", .resource_column = {}, .resource = {}, .gate_table = bad}),
              errc::bad_option);
  }
  EXPECT_EQ(code({.table = "t", .resource_column = "a\nb"}), errc::bad_option);
  EXPECT_EQ(code({.table = "t", .resource_column = {}, .resource = "a\nb"}), errc::bad_option);
  EXPECT_EQ(code_of([] { (void)sql_trigger_ddl(dialect::sqlite, {.table = "t"}); }),
            errc::not_supported);
  EXPECT_EQ(code_of([] { (void)declare_pass(dialect::sqlite, exclusive(1)); }),
            errc::not_supported);
  EXPECT_EQ(code_of([] { sql_gate(dialect::sqlite, "r", {.declares_pass = true}); }),
            errc::not_supported);
}

// Clients that only declare their passes, and do not ask the gate first.
TEST_P(SqlTriggers, LetNoOlderWriteFollowANewerOne) {
  constexpr std::uint64_t clients = 6;
  constexpr std::uint64_t turns = 25;
  const connection database = connect();
  database.run("DROP TABLE log");
  database.run(is(dialect::postgres)
                   ? "CREATE TABLE log (at bigserial PRIMARY KEY, token bigint)"
                   : "CREATE TABLE log (at bigint AUTO_INCREMENT PRIMARY KEY, token bigint)");
  fence_accounts({.table = "log"});
  std::vector<connection> connections;
  for (std::uint64_t client = 0; client < clients; ++client) connections.push_back(connect());
  std::atomic<int> passed{0};
  std::vector<std::thread> threads;
  for (std::uint64_t client = 0; client < clients; ++client) {
    threads.emplace_back([&, client] {
      for (std::uint64_t turn = 0; turn < turns; ++turn) {
        const std::uint64_t token = 1 + turn * clients / 2 + client;
        const std::string insert = "INSERT INTO log (token) VALUES (" + std::to_string(token) + ")";
        std::string refused = "40001";
        for (int attempt = 0; attempt < 1000 && asks_for_another_try(refused); ++attempt) {
          refused = write(connections[client], exclusive(token), insert);
        }
        EXPECT_TRUE(refused.empty() || refused == sql_state::stale) << refused;
        if (refused.empty()) ++passed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  // The numbers of both databases are drawn after the trigger has the row: in the order of commits.
  const auto rows = database.run("SELECT token FROM log ORDER BY at").rows;
  EXPECT_EQ(static_cast<int>(rows.size()), passed);
  EXPECT_GE(passed, static_cast<int>(turns));
  std::int64_t newest = 0;
  for (const auto& row : rows) {
    EXPECT_GE(kit::number_of(row.at(0)), newest);
    newest = kit::number_of(row.at(0));
  }
}

/// For the tests of one database.
template <class Database>
void make_tables(Database& database) {
  database.run("DROP TABLE IF EXISTS accounts");
  database.run("DROP TABLE IF EXISTS sallyport_fence");
  database.run("CREATE TABLE accounts (id bigint PRIMARY KEY)");
}

/// What the client `mariadb` makes of a script: it cuts it at delimiters, which are lines of their own.
std::vector<std::string> statements_of(const std::string& script) {
  std::vector<std::string> all;
  std::string delimiter = ";";
  std::string text;
  std::istringstream lines{script};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("DELIMITER ")) {
      delimiter = line.substr(10);
    } else if (line == delimiter) {
      all.push_back(std::exchange(text, ""));
    } else {
      EXPECT_EQ(line.find(delimiter), std::string::npos) << line;
      text += line + "\n";
    }
  }
  EXPECT_EQ(text.find_first_not_of('\n'), std::string::npos) << text;
  return all;
}

TEST_P(SqlTriggers, CanBePutUpByAScript) {
  const connection database = connect();
  const sql_trigger_options options{.table = "log", .resource_column = "at"};

  const std::string script = sql_script(GetParam(), sql_trigger_ddl(GetParam(), options));
  if (is(dialect::postgres)) {
    databases::postgres().rows("BEGIN;\n" + script + "COMMIT;");
  } else {
    for (const std::string& each : statements_of(script)) database.run(each);
  }

  EXPECT_EQ(state_of([&] { database.run("INSERT INTO log VALUES (1, 1)"); }), sql_state::no_pass);
  EXPECT_EQ(write(database, exclusive(3), "INSERT INTO log VALUES (1, 1)"), "");
  EXPECT_EQ(numbers_of(database, "log/1"), (std::vector<std::string>{"orders", "3", "0"}));
}

// docs/fencing.md says which rights a writer needs.
TEST(SqlTriggersOnPostgres, NeedRightsOnTheTableOfNumbers) {
  const connection owner = databases::connect(dialect::postgres);
  make_tables(owner);
  for (const auto& each : sql_trigger_ddl(dialect::postgres, {.table = "accounts"})) owner(each);
  owner.run("CREATE ROLE writer LOGIN");
  owner.run("GRANT SELECT, INSERT ON accounts TO writer");
  owner.run("REVOKE ALL ON sallyport_fence FROM writer");
  const auto writer =
      connect_to<kit::postgres_executor>("host=127.0.0.1 user=writer dbname=postgres port=" +
                                         std::to_string(databases::postgres().port()));
  const auto written = [&] {
    return state_of([&] {
      writer.run("BEGIN");
      writer(declare_pass(dialect::postgres, exclusive(7)));
      writer.run("INSERT INTO accounts VALUES (1)");
      writer.run("COMMIT");
    });
  };

  EXPECT_EQ(written(), "42501");
  writer.run("ROLLBACK");
  owner.run("GRANT SELECT, INSERT, UPDATE ON sallyport_fence TO writer");
  EXPECT_EQ(written(), "");

  owner.run("DROP OWNED BY writer");
  owner.run("DROP ROLE writer");
}

TEST(SqlTriggersOnMariadb, NeedNoRightsOnTheTableOfNumbers) {
  const connection owner = databases::connect(dialect::mariadb);
  make_tables(owner);
  for (const auto& each : sql_trigger_ddl(dialect::mariadb, {.table = "accounts"})) owner(each);
  owner.run("CREATE USER writer@'127.0.0.1'");
  owner.run("GRANT SELECT, INSERT ON test.accounts TO writer@'127.0.0.1'");
  const auto writer = connect_to<kit::mariadb_executor>(
      kit::mariadb_executor_options{.port = databases::mariadb().port(), .user = "writer"});

  EXPECT_EQ(state_of([&] { writer.run("INSERT INTO accounts VALUES (1)"); }), sql_state::no_pass);
  writer(declare_pass(dialect::mariadb, exclusive(7)));
  EXPECT_EQ(state_of([&] { writer.run("INSERT INTO accounts VALUES (1)"); }), "");
  EXPECT_EQ(state_of([&] { writer.run("UPDATE sallyport_fence SET newest_exclusive = 0"); }),
            "42000");

  owner.run("DROP USER writer@'127.0.0.1'");
}

TEST(SqlTriggersOnMariadb, AreRefusedForATableWithoutTransactions) {
  const connection owner = databases::connect(dialect::mariadb);
  const auto put_up = [&](const sql_trigger_options& options) {
    return state_of([&] {
      for (const auto& each : sql_trigger_ddl(dialect::mariadb, options)) owner(each);
    });
  };
  for (const char* const engine : {"Aria", "MyISAM"}) {
    make_tables(owner);
    owner.run(std::string("ALTER TABLE accounts ENGINE = ") + engine);

    EXPECT_EQ(put_up({.table = "accounts"}), sql_state::bad_pass) << engine;
    EXPECT_EQ(put_up({.table = "test.accounts", .resource_column = "id"}), sql_state::bad_pass);
    EXPECT_EQ(state_of([&] { owner.run("INSERT INTO accounts VALUES (1)"); }), "")
        << "it has no triggers";
  }
  make_tables(owner);
  EXPECT_EQ(put_up({.table = "test.accounts", .resource_column = "id"}), "");
}

/// Runs a script of this folder as `sallyport run` would, with a folder of programs of its own.
bool run_script(const std::string& script, const std::string& programs, const std::string& database,
                const pass& shown) {
  const std::string path = programs + ":/usr/bin:/bin";
  // NOLINTBEGIN(concurrency-mt-unsafe, cert-env33-c): one thread, and a script of ours
  ::setenv("SALLYPORT_TOKEN", std::to_string(shown.token.value()).c_str(), 1);
  ::setenv("SALLYPORT_FENCE_LOCK", shown.lock.c_str(), 1);
  ::setenv("DATABASE", database.c_str(), 1);
  const std::string command =
      "PATH='" + path + "' sh '" SALLYPORT_FENCING_SCRIPTS "/" + script + "'";
  return std::system(command.c_str()) == 0;
  // NOLINTEND(concurrency-mt-unsafe, cert-env33-c)
}

TEST(SqlTriggersOnPostgres, TakeAPassFromTheShell) {
  const connection database = databases::connect(dialect::postgres);
  make_tables(database);
  database.run("INSERT INTO accounts VALUES (42)");
  database.run("ALTER TABLE accounts ADD COLUMN balance INT DEFAULT 100");
  for (const auto& each : sql_trigger_ddl(dialect::postgres, {.table = "accounts"})) database(each);
  const auto run = [](std::uint64_t token) {
    return run_script("pass_in_psql.sh", SALLYPORT_PSQL_FOLDER, databases::postgres().address(),
                      {.lock = "redis:4f1c|it's mine", .token = fencing_token{token}});
  };

  EXPECT_TRUE(run(34));
  EXPECT_FALSE(run(33));

  EXPECT_EQ(database.number("SELECT balance FROM accounts"), 150);
}

TEST(SqlTriggersOnMariadb, TakeAPassFromTheShell) {
  const connection database = databases::connect(dialect::mariadb);
  make_tables(database);
  database.run("INSERT INTO accounts VALUES (42)");
  database.run("ALTER TABLE accounts ADD COLUMN balance INT DEFAULT 100");
  for (const auto& each : sql_trigger_ddl(dialect::mariadb, {.table = "accounts"})) database(each);
  // In the place of the client, which is not here: what it is told is carried out below.
  const kit::temporary_folder programs{"programs"};
  const std::string heard = programs.path() / "heard";
  std::ofstream(programs.path() / "mariadb") << "#!/bin/sh\ncat > '" << heard << "'\n";
  std::filesystem::permissions(programs.path() / "mariadb", std::filesystem::perms::owner_all);
  const auto run = [&](std::uint64_t token) {
    EXPECT_TRUE(run_script("pass_in_mariadb.sh", programs.path(), "test",
                           {.lock = "redis:4f1c|it's mine", .token = fencing_token{token}}));
    std::ifstream in{heard};
    return state_of([&] {
      for (std::string line; std::getline(in, line);) {
        database.run(line.substr(0, line.find(';')));
      }
    });
  };

  EXPECT_EQ(run(34), "");
  EXPECT_EQ(run(33), sql_state::stale);

  database.run("ROLLBACK");
  EXPECT_EQ(database.number("SELECT balance FROM accounts"), 150);
}

TEST(SqlTriggersOnPostgres, KeepClientsOfAPoolerApart) {
  const connection owner = databases::connect(dialect::postgres);
  make_tables(owner);
  for (const auto& each : sql_trigger_ddl(dialect::postgres, {.table = "accounts"})) owner(each);
  const kit::pgbouncer pooler{databases::postgres(), "transaction", 1};
  const auto one = connect_to<kit::postgres_executor>(pooler.address());
  const auto other = connect_to<kit::postgres_executor>(pooler.address());
  const sql_gate gate{dialect::postgres, "accounts", {.declares_pass = true}};

  EXPECT_EQ(gate.run(one, exclusive(7), [&] { one.run("INSERT INTO accounts VALUES (1)"); }),
            verdict::passed);

  EXPECT_EQ(state_of([&] { other.run("INSERT INTO accounts VALUES (2)"); }), sql_state::no_pass);
  EXPECT_EQ(owner.number("SELECT count(*) FROM accounts"), 1);
}

TEST(SqlTriggersOnMariadb, ForgetThePassOfAPooledConnectionThatIsReset) {
  kit::mariadb_executor database{{.port = databases::mariadb().port()}};
  make_tables(database);
  for (const auto& each : sql_trigger_ddl(dialect::mariadb, {.table = "accounts"})) database(each);
  database(declare_pass(dialect::mariadb, exclusive(7)));

  database.reset();

  EXPECT_EQ(state_of([&] { database.run("INSERT INTO accounts VALUES (1)"); }), sql_state::no_pass);
}

TEST(SqlTriggersOnPostgres, FindTheirNumbersFromAnySearchPath) {
  const connection database = databases::connect(dialect::postgres);
  make_tables(database);
  for (const auto& each : sql_trigger_ddl(dialect::postgres, {.table = "public.accounts"})) {
    database(each);
  }
  database.run("CREATE SCHEMA elsewhere");
  database.run("SET search_path = elsewhere");

  database.run("BEGIN");
  database(declare_pass(dialect::postgres, exclusive(7)));
  EXPECT_EQ(state_of([&] { database.run("INSERT INTO public.accounts VALUES (1)"); }), "");
  database.run("COMMIT");

  database.run("DROP SCHEMA elsewhere");
  EXPECT_EQ(database.number("SELECT newest_exclusive FROM public.sallyport_fence "
                            "WHERE resource = 'accounts'"),
            7);
}

/// Writes to public.accounts as somebody whose own names come first; the SQLSTATE of a refusal, or "".
std::string write_under(const connection& database, std::uint64_t token) {
  return state_of([&] {
    database.run("BEGIN");
    try {
      database(declare_pass(dialect::postgres, exclusive(token)));
      database.run("INSERT INTO public.accounts VALUES (" + std::to_string(token) + ")");
      database.run("COMMIT");
    } catch (const kit::sql_error&) {
      database.run("ROLLBACK");
      throw;
    }
  });
}

TEST(SqlTriggersOnPostgres, KeepTheirNumbersWhenAWriterHasASchemaOfItsOwn) {
  const connection database = databases::connect(dialect::postgres);
  make_tables(database);
  database.run("SET search_path = \"$user\", public");  // as servers have it
  for (const auto& each : sql_trigger_ddl(dialect::postgres, {.table = "accounts"})) database(each);
  for (const char* each : {"CREATE ROLE shop", "GRANT ALL ON sallyport_fence, accounts TO shop"}) {
    database.run(each);
  }
  database.run("SET ROLE shop");
  EXPECT_EQ(write_under(database, 50), "");
  EXPECT_EQ(write_under(database, 40), sql_state::stale);

  // Its own schema, and its own gates in it: "$user" now leads there.
  database.run("RESET ROLE");
  database.run("CREATE SCHEMA shop AUTHORIZATION shop");
  database.run("SET ROLE shop");
  database.run("CREATE TABLE orders (id bigint)");
  for (const auto& each : sql_trigger_ddl(dialect::postgres, {.table = "orders"})) database(each);

  EXPECT_EQ(write_under(database, 40), sql_state::stale);
  EXPECT_EQ(write_under(database, 51), "");

  database.run("RESET ROLE");
  EXPECT_EQ(database.number("SELECT newest_exclusive FROM public.sallyport_fence "
                            "WHERE resource = 'accounts'"),
            51);
  EXPECT_EQ(database.number("SELECT count(*) FROM shop.sallyport_fence"), 0);
  for (const char* each : {"DROP OWNED BY shop CASCADE", "DROP ROLE shop"}) database.run(each);
}

TEST(SqlTriggersOnPostgres, KeepTheirNumbersWhenAWriterHasATemporaryTableOfThatName) {
  const connection database = databases::connect(dialect::postgres);
  make_tables(database);
  for (const auto& each : sql_trigger_ddl(dialect::postgres, {.table = "accounts"})) database(each);
  EXPECT_EQ(write_under(database, 50), "");

  database.run("CREATE TEMPORARY TABLE sallyport_fence (LIKE public.sallyport_fence)");

  EXPECT_EQ(write_under(database, 40), sql_state::stale);
}

/// A table `ledger` of accounts, with parts that can be written to by their own names.
struct parted_ledger {
  explicit parted_ledger(const std::string& how) {
    database.run("DROP TABLE IF EXISTS ledger CASCADE");
    database.run("DROP TABLE IF EXISTS sallyport_fence");
    if (how == "partitions") {
      database.run("CREATE TABLE ledger (id INT, balance INT) PARTITION BY RANGE (id)");
      database.run(
          "CREATE TABLE ledger_low PARTITION OF ledger FOR VALUES FROM (0) TO (100) "
          "PARTITION BY RANGE (id)");
      database.run("CREATE TABLE \"Ledger lowest\" PARTITION OF ledger_low DEFAULT");
      database.run("CREATE TABLE ledger_high PARTITION OF ledger DEFAULT");
    } else {
      database.run("CREATE TABLE ledger (id INT, balance INT)");
      database.run("CREATE TABLE ledger_high () INHERITS (ledger)");
      database.run("CREATE TABLE \"Ledger lowest\" () INHERITS (ledger_high)");
    }
    database.run("INSERT INTO \"Ledger lowest\" VALUES (1, 100)");
    database.run("INSERT INTO ledger_high VALUES (200, 100)");
  }
  ~parted_ledger() {
    database.run("DROP TABLE ledger CASCADE");
    database.run("DROP TABLE sallyport_fence");
  }
  parted_ledger(const parted_ledger&) = delete;
  parted_ledger& operator=(const parted_ledger&) = delete;

  void put_up(const sql_trigger_options& options) const {
    for (const auto& each : sql_trigger_ddl(dialect::postgres, options)) database(each);
  }
  [[nodiscard]] std::string refusal(const std::string& text) const {
    return state_of([&] { database.run(text); });
  }

  connection database = databases::connect(dialect::postgres);
};

class SqlTriggersOnPostgresParts : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(As, SqlTriggersOnPostgresParts, testing::Values("partitions", "children"),
                         [](const auto& each) { return std::string(each.param); });

TEST_P(SqlTriggersOnPostgresParts, GuardWhatIsWrittenByThePartsOwnName) {
  const parted_ledger ledger{GetParam()};
  for (const char* const column : {"", "id", "", "id"}) {
    ledger.put_up({.table = "ledger", .resource_column = column});
    for (const std::string table : {"ledger", "ledger_high", "\"Ledger lowest\""}) {
      const std::string row = table.ends_with("high") ? "200" : "1";
      for (const std::string& text :
           {"INSERT INTO " + table + " VALUES (" + row + ", 7)",
            "UPDATE " + table + " SET balance = 7", "DELETE FROM " + table}) {
        EXPECT_EQ(ledger.refusal(text), sql_state::no_pass) << column << ": " << text;
      }
      EXPECT_EQ(ledger.refusal("TRUNCATE " + table),
                *column == 0 ? sql_state::no_pass : sql_state::bad_pass)
          << column << ": " << table;
    }
    ledger.database.run("BEGIN");
    ledger.database(
        declare_pass(dialect::postgres, pass{.lock = "orders", .token = fencing_token{7}}));
    EXPECT_EQ(ledger.refusal("UPDATE ledger SET balance = balance + 1"), "") << column;
    EXPECT_EQ(ledger.refusal("UPDATE ledger_high SET balance = balance + 1"), "") << column;
    EXPECT_EQ(ledger.refusal("INSERT INTO ledger VALUES (300, 1)"), "") << column;
    ledger.database.run("ROLLBACK");
  }
}

TEST_P(SqlTriggersOnPostgresParts, AreTakenAwayFromAllOfThem) {
  const parted_ledger ledger{GetParam()};
  for (const char* const column : {"", "id"}) {
    ledger.put_up({.table = "ledger", .resource_column = column});

    for (const auto& each : sql_trigger_removal(dialect::postgres, {.table = "ledger"})) {
      ledger.database(each);
    }

    EXPECT_EQ(ledger.database.number("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal "
                                     "AND tgrelid::regclass::text LIKE '%edger%'"),
              0);
    EXPECT_EQ(ledger.refusal("UPDATE ledger_high SET balance = 7"), "");
    EXPECT_EQ(ledger.refusal("TRUNCATE \"Ledger lowest\""), "");
  }
}

TEST(SqlTriggersOnPostgres, GuardAPartitionThatCameLaterOnceTheyArePutUpAgain) {
  const parted_ledger ledger{"partitions"};
  ledger.database.run("CREATE TABLE later (id INT, balance INT)");
  ledger.put_up({.table = "ledger"});
  ledger.database.run("ALTER TABLE ledger ATTACH PARTITION later FOR VALUES FROM (500) TO (600)");
  EXPECT_EQ(ledger.refusal("INSERT INTO later VALUES (500, 1)"), "") << "as the page says";

  ledger.put_up({.table = "ledger"});

  EXPECT_EQ(ledger.refusal("INSERT INTO later VALUES (501, 1)"), sql_state::no_pass);
}

TEST(SqlTriggersOnPostgres, AreMadeInASchemaOfAnyName) {
  const connection database = databases::connect(dialect::postgres);
  make_tables(database);
  database.run("CREATE SCHEMA \"it's $fence$ \\ @home@\"");
  database.run("SET search_path = \"it's $fence$ \\ @home@\"");
  for (const auto& each : sql_trigger_ddl(
           dialect::postgres, {.table = "public.accounts", .resource = "@home@ @home1@"})) {
    database(each);
  }
  database.run("RESET search_path");

  EXPECT_EQ(write_under(database, 50), "");
  EXPECT_EQ(write_under(database, 40), sql_state::stale);

  EXPECT_EQ(
      database.number("SELECT newest_exclusive FROM \"it's $fence$ \\ @home@\".sallyport_fence "
                      "WHERE resource = '@home@ @home1@'"),
      50);
  database.run("DROP SCHEMA \"it's $fence$ \\ @home@\" CASCADE");
}

TEST(SqlTriggersOnPostgres, TellRowsApartWhoseColumnHasATypeOfSomeSchema) {
  const connection database = databases::connect(dialect::postgres);
  make_tables(database);
  database.run("DROP TABLE accounts");
  database.run("CREATE SCHEMA types");
  // A type whose operators the functions' own path does not find, and which takes a and A for one.
  database.run(
      "CREATE COLLATION types.loose (provider = icu, locale = 'und-u-ks-level2', "
      "deterministic = false)");
  database.run("CREATE DOMAIN types.key AS text COLLATE types.loose");
  database.run("CREATE TABLE accounts (id types.key)");
  for (const auto& each :
       sql_trigger_ddl(dialect::postgres, {.table = "accounts", .resource_column = "id"})) {
    database(each);
  }
  const auto under = [&](std::uint64_t token, const std::string& text) {
    return state_of([&] {
      database.run("BEGIN");
      try {
        database(declare_pass(dialect::postgres, exclusive(token)));
        database.run(text);
        database.run("COMMIT");
      } catch (const kit::sql_error&) {
        database.run("ROLLBACK");
        throw;
      }
    });
  };

  EXPECT_EQ(under(50, "INSERT INTO accounts VALUES ('A')"), "");
  EXPECT_EQ(under(10, "INSERT INTO accounts VALUES ('b')"), "");
  EXPECT_EQ(under(20, "UPDATE accounts SET id = 'a' WHERE id = 'b'"), "");
  EXPECT_EQ(under(30, "UPDATE accounts SET id = 'A' WHERE id COLLATE \"C\" = 'a'"),
            sql_state::stale);

  database.run("DROP TABLE accounts");
  database.run("DROP SCHEMA types CASCADE");
}

}  // namespace
}  // namespace sallyport::fence
