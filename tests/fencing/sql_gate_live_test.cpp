#include "base/random.hpp"
#include "fence/gate_state.hpp"
#include "fence/test_rebinding.hpp"
#include "tests/fencing/databases.hpp"
#include <sallyport/fence_sql.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace sallyport::fence {
namespace {

using sql::dialect;

/// Stands in for sallyport::lease: all that a gate asks of one.
struct fake_lease {
  std::uint64_t token;
  pass fence_pass() const { return {.lock = "orders", .token = fencing_token{token}}; }
};

class SqlGate : public OnDatabase {};

INSTANTIATE_TEST_SUITE_P(On, SqlGate,
                         testing::Values(dialect::postgres, dialect::mariadb, dialect::sqlite),
                         name_of);

TEST_P(SqlGate, LosesTheUpdateWhenNobodyStandsInFront) {
  const connection database = connect();

  const auto seen_by_first = balance(database);
  database.run("UPDATE accounts SET balance = 150 WHERE id = 42");
  database.run("UPDATE accounts SET balance = " + std::to_string(seen_by_first - 30));

  EXPECT_EQ(balance(database), 70);  // the second holder's 50 are gone
}

// docs/fencing.md shows this code.
TEST_P(SqlGate, RefusesTheLostUpdate) {
  const fake_lease first{33};
  const fake_lease second{34};
  const connection database = connect();
  const auto your_database = GetParam();

  const sql_gate gate{your_database, "orders"};

  const auto seen_by_first = balance(database);
  const verdict for_second = gate.run(database, second, [&] {
    database.run("UPDATE accounts SET balance = balance + 50 WHERE id = 42");
  });
  const verdict for_first = gate.run(database, first, [&] {
    database.run("UPDATE accounts SET balance = " + std::to_string(seen_by_first - 30));
  });
  // for_second is passed, for_first is stale.

  EXPECT_EQ(for_second, verdict::passed);
  EXPECT_EQ(for_first, verdict::stale);
  EXPECT_EQ(balance(database), 150);
}

// docs/fencing.md shows this code.
TEST_P(SqlGate, IsAStatementInYourOwnTransaction) {
  const fake_lease lease{34};
  const connection database = connect();
  const sql_gate gate{GetParam(), "orders"};

  database.run("BEGIN");
  if (sql_gate::verdict_of(database(gate.admit(lease))) == verdict::passed) {
    database.run("UPDATE accounts SET balance = balance + 50 WHERE id = 42");
    database.run("COMMIT");
  } else {
    database.run("ROLLBACK");
  }

  EXPECT_EQ(balance(database), 150);
  EXPECT_EQ(numbers_of(database, "orders"), (std::vector<std::string>{"orders", "34", "0"}));
}

TEST_P(SqlGate, JudgesAsTheRuleSays) {
  base::random random{23};
  const connection database = connect();
  const auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

  for (int round = 0; round < 30; ++round) {
    // Small numbers meet each other; large ones show that no digit is lost: neither where a
    // floating-point number loses the first, nor at the end of 63 bits.
    const std::uint64_t base = round % 3 == 0   ? 1
                               : round % 3 == 1 ? (std::uint64_t{1} << 53U) - 3
                                                : largest - 11;
    const bool bound = random.chance(0.3);
    gate_state model;
    if (bound) model.lock = "orders";
    const std::string resource = "round " + std::to_string(round);
    const sql_gate gate{GetParam(), resource, {.lock = model.lock}};
    for (int step = 0; step < 30; ++step) {
      const pass shown{.lock = random.chance(0.1) ? "Orders" : "orders",
                       .token = fencing_token{base + random.below(12)},
                       .mode = random.chance(0.5) ? lock_mode::exclusive : lock_mode::shared};
      const verdict expected = model.judge(shown);
      if (expected == verdict::passed) model.raise(shown);
      int ran = 0;
      verdict said{};
      if (random.chance(0.5)) {
        said = gate.run(database, shown, [&] { ++ran; });
      } else {  // whatever it answers, what it did to the row is committed
        database.run("BEGIN");
        said = sql_gate::verdict_of(database(gate.admit(shown)));
        database.run("COMMIT");
        ran = said == verdict::passed ? 1 : 0;
      }

      ASSERT_EQ(said, expected) << "round " << round << ", step " << step;

      ASSERT_EQ(ran, expected == verdict::passed ? 1 : 0);
      const auto kept = numbers_of(database, resource);
      if (model.newest_exclusive == fencing_token{} && model.newest_shared == fencing_token{}) {
        ASSERT_TRUE(kept.empty());
      } else {
        ASSERT_EQ(kept, (std::vector<std::string>{model.lock,
                                                  std::to_string(model.newest_exclusive.value()),
                                                  std::to_string(model.newest_shared.value())}));
      }
    }
  }
}

TEST_P(SqlGate, IsBoundAnewAsAMemoryGateIs) {
  const connection database = connect();
  for (std::uint64_t round = 0; round < 8; ++round) {
    const sql_gate gate{GetParam(), "bound anew " + std::to_string(round)};
    rebind_like_a_memory_gate(
        round, round % 2 == 0 ? 1 : sql_gate::max_token - 11, 30,
        [&](const pass& shown) { return gate.run(database, shown, [] {}); },
        [&](const std::string& from, const pass& shown, rebinding kind) {
          if (round % 4 < 2) return gate.rebind(database, from, shown, kind);
          // As 'sallyport fence rebind --sql' prints it.
          const sql::answer said =
              database.run(sql_text(GetParam(), gate.rebind(from, shown, kind)));
          return said.rows.empty() ? verdict::wrong_lock : sql_gate::verdict_of(said);
        });
  }
}

TEST_P(SqlGate, KeepsResourcesApartByteByByte) {
  const connection database = connect();
  const std::vector<std::string> names{"a",
                                       "A",
                                       "a ",
                                       "ä",
                                       "a'b",
                                       "a\"b",
                                       "a\\b",
                                       "a`b",
                                       "a;--",
                                       "?$1",
                                       "%s",
                                       std::string(255, 'x'),
                                       std::string(254, 'x') + "y"};
  std::uint64_t token = 10;
  for (const auto& name : names) {
    EXPECT_EQ((sql_gate{GetParam(), name}.run(
                  database, pass{.lock = name, .token = fencing_token{++token}}, nothing)),
              verdict::passed);
  }

  token = 10;
  for (const auto& name : names) {
    ++token;
    EXPECT_EQ(numbers_of(database, name),
              (std::vector<std::string>{name, std::to_string(token), "0"}));
    EXPECT_EQ((sql_gate{GetParam(), name}.run(
                  database, pass{.lock = name + " ", .token = fencing_token{99}}, nothing)),
              verdict::wrong_lock);
  }
}

TEST_P(SqlGate, TakesBackNumberAndDataWhenTheActionThrows) {
  const connection database = connect();
  const sql_gate gate{GetParam(), "orders"};
  EXPECT_EQ(gate.run(database, exclusive(3), nothing), verdict::passed);

  EXPECT_THROW((void)gate.run(database, exclusive(9),
                              [&] {
                                database.run("UPDATE accounts SET balance = 0");
                                throw std::runtime_error("no");
                              }),
               std::runtime_error);

  EXPECT_EQ(balance(database), 100);
  EXPECT_EQ(numbers_of(database, "orders"), (std::vector<std::string>{"orders", "3", "0"}));
  // Nothing of the newer holder is left, so the older one harms nothing.
  EXPECT_EQ(gate.run(database, exclusive(4), nothing), verdict::passed);
  // What shuts the gate at once is an empty run, committed.
  EXPECT_EQ(gate.run(database, exclusive(9), nothing), verdict::passed);
  EXPECT_EQ(gate.run(database, exclusive(8), nothing), verdict::stale);
}

TEST_P(SqlGate, NoticesThatTheTransactionEndedInside) {
  const connection database = connect();
  const sql_gate gate{GetParam(), "orders"};

  bool told = false;
  try {
    (void)gate.run(database, exclusive(3), [&] {
      database.run("UPDATE accounts SET balance = 1");
      database.run("COMMIT");
      database.run("UPDATE accounts SET balance = 2");
    });
  } catch (const std::exception&) {  // ours, or sqlite's, which has nothing to commit
    told = true;
  }
  EXPECT_TRUE(told);
  EXPECT_EQ(gate.run(database, exclusive(4), nothing),
            verdict::passed);  // the connection is usable
}

TEST_P(SqlGate, RefusesWhatItCanNeverJudgeBeforeItSendsAnything) {
  const sql::executor never = [](const sql::statement&) -> sql::answer {
    throw std::logic_error("sent");
  };
  const sql_gate gate{GetParam(), "orders", {.lock = "orders"}};
  const auto run = [&](const pass& shown) {
    return code_of([&] { (void)gate.run(never, shown, nothing); });
  };

  EXPECT_EQ(run(exclusive(0)), errc::no_fencing);
  EXPECT_EQ(run(exclusive(sql_gate::max_token + 1)), errc::bad_option);
  EXPECT_EQ(run(exclusive(std::numeric_limits<std::uint64_t>::max())), errc::bad_option);
  for (const std::string& bad :
       {std::string(), std::string("a\0b", 3), std::string("a\nb"), std::string("\xff"),
        std::string(300, '\x80'), std::string(1 << 20, 'x')}) {
    EXPECT_EQ(run({.lock = bad, .token = fencing_token{1}}), errc::bad_name);
    EXPECT_EQ(code_of([&] { sql_gate(GetParam(), bad); }), errc::bad_option);
    EXPECT_EQ(code_of([&] { sql_gate(GetParam(), "orders", {.lock = {}, .table = bad}); }),
              errc::bad_option);
    EXPECT_EQ(code_of([&] { (void)sql_gate::schema(GetParam(), bad); }), errc::bad_option);
    if (!bad.empty()) {
      EXPECT_EQ(code_of([&] { sql_gate(GetParam(), "orders", {.lock = bad}); }), errc::bad_name);
    }
  }
}

TEST_P(SqlGate, KeepsItsNumbersInATableOfAnyName) {
  const connection database = connect();
  const std::string table = "my ?$1\"`' table";
  for (int twice = 0; twice < 2; ++twice) {
    for (const auto& each : sql_gate::schema(GetParam(), table)) database(each);
  }
  const sql_gate gate{GetParam(), "orders", {.lock = {}, .table = table}};

  EXPECT_EQ(gate.run(database, exclusive(7), nothing), verdict::passed);
  EXPECT_EQ(gate.run(database, exclusive(6), nothing), verdict::stale);

  EXPECT_TRUE(numbers_of(database, "orders").empty());
  database.run("DROP TABLE " + sql::quoted(GetParam(), table));
}

/// Retries what asks for it, as a program above READ COMMITTED has to.
verdict run_until_answered(const sql_gate& gate, const connection& database, const pass& shown,
                           const std::function<void()>& action) {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    try {
      return gate.run(database, shown, action);
    } catch (const kit::sql_error& error) {
      if (!asks_for_another_try(error.state())) throw;
    }
  }
  throw std::runtime_error("a transaction was refused a thousand times");
}

/// Many connections read, add one and write back, each under tokens of its own, without any lock but the
/// gate's; no row is there when they begin. Every update is counted, and no older one follows a newer.
void contend(const std::function<connection()>& connect, sql::dialect whose,
             const std::string& level) {
  constexpr std::uint64_t clients = 6;
  constexpr std::uint64_t turns = 25;
  std::atomic<std::int64_t> passed{0};
  std::atomic<bool> failed{false};
  std::vector<connection> connections;
  for (std::uint64_t client = 0; client < clients; ++client) {
    connections.push_back(connect());
    if (!level.empty()) connections.back().run(level);
  }
  std::vector<std::thread> threads;
  for (std::uint64_t client = 0; client < clients; ++client) {
    threads.emplace_back([&, client] {
      try {
        const connection& database = connections[client];
        const sql_gate gate{whose, "orders"};
        for (std::uint64_t turn = 0; turn < turns; ++turn) {
          const std::uint64_t token = 1 + turn * clients / 2 + client;
          const verdict said = run_until_answered(gate, database, exclusive(token), [&] {
            const auto seen = database.number("SELECT balance FROM accounts WHERE id = 42");
            const auto at = database.number("SELECT count(*) FROM log");
            database.run("UPDATE accounts SET balance = " + std::to_string(seen + 1));
            database.run("INSERT INTO log VALUES (" + std::to_string(at) + ", " +
                         std::to_string(token) + ")");
          });
          if (said == verdict::passed) ++passed;
        }
      } catch (const std::exception& error) {
        failed = true;
        ADD_FAILURE() << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_FALSE(failed);

  const connection database = connect();
  EXPECT_EQ(database.number("SELECT balance FROM accounts WHERE id = 42"), 100 + passed);
  const auto rows = database.run("SELECT token FROM log ORDER BY at").rows;
  EXPECT_EQ(static_cast<std::int64_t>(rows.size()), passed);
  EXPECT_GE(passed, static_cast<std::int64_t>(turns));
  std::int64_t newest = 0;
  for (const auto& row : rows) {
    EXPECT_GE(kit::number_of(row.at(0)), newest);
    newest = kit::number_of(row.at(0));
  }
  EXPECT_EQ(database.number("SELECT newest_exclusive FROM sallyport_fence"), newest);
}

TEST_P(SqlGate, LosesNoUpdateAmongManyConnections) {
  contend([this] { return connect(); }, GetParam(), "");
}

TEST_P(SqlGate, LosesNoUpdateAtAnyLevelOfIsolation) {
  if (is(dialect::sqlite)) {  // it knows one
    contend([this] { return connect(); }, GetParam(), "PRAGMA journal_mode = WAL");
    return;
  }
  for (const char* level : {"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"}) {
    SetUp();
    contend([this] { return connect(); }, GetParam(),
            (is(dialect::postgres) ? "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL "
                                   : "SET SESSION TRANSACTION ISOLATION LEVEL ") +
                std::string(level));
  }
}

/// On servers: who waits at the gate, and what it finds then.
class SqlGateWaiting : public OnDatabase {
 protected:
  /// The first transaction is inside under `first` and ends by `end`; meanwhile the second shows its
  /// pass. What the second gets: a verdict, or the SQLSTATE of the database.
  std::string second_gets(std::uint64_t first, const std::string& end, std::uint64_t second,
                          const std::string& level) {
    const sql_gate gate{GetParam(), "orders"};
    const connection inside = connect();
    const connection waiting = connect();
    waiting.run((is(dialect::postgres)
                     ? "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL "
                     : "SET SESSION TRANSACTION ISOLATION LEVEL ") +
                level);
    inside.run("BEGIN");
    EXPECT_EQ(sql_gate::verdict_of(inside(gate.admit(exclusive(first)))), verdict::passed);
    std::string got;
    std::thread thread{[&] {
      const auto refused = state_of([&] {
        const verdict said =
            gate.run(waiting, exclusive(second), [&] { seen_ = balance(waiting); });
        got = to_string(said);
      });
      if (!refused.empty()) got = refused;
    }};
    EXPECT_TRUE(somebody_waits());
    inside.run("UPDATE accounts SET balance = 150");
    inside.run(end);
    thread.join();
    return got;
  }

  std::int64_t seen_ = 0;
};

INSTANTIATE_TEST_SUITE_P(On, SqlGateWaiting, testing::Values(dialect::postgres, dialect::mariadb),
                         name_of);

TEST_P(SqlGateWaiting, LetsANewerHolderSeeWhatTheOlderCommitted) {
  for (const char* there : {"", "row"}) {
    SetUp();
    const bool row = *there != '\0';
    if (row) (void)sql_gate{GetParam(), "orders"}.run(connect(), exclusive(1), nothing);

    EXPECT_EQ(second_gets(33, "COMMIT", 34, "READ COMMITTED"), "passed");

    EXPECT_EQ(seen_, 150);
  }
}

TEST_P(SqlGateWaiting, RefusesTheOlderHolderAfterTheCommit) {
  EXPECT_EQ(second_gets(34, "COMMIT", 33, "READ COMMITTED"), "stale");
  SetUp();
  EXPECT_EQ(second_gets(34, "ROLLBACK", 33, "READ COMMITTED"), "passed");
  EXPECT_EQ(seen_, 100);
}

TEST_P(SqlGateWaiting, NeverLetsAnOldSnapshotIn) {
  for (const char* level : {"REPEATABLE READ", "SERIALIZABLE"}) {
    SetUp();
    const std::string newer = second_gets(33, "COMMIT", 34, level);
    if (is(dialect::postgres)) {
      EXPECT_EQ(newer, "40001") << level;  // its snapshot is older than what it waited for
    } else {
      EXPECT_EQ(newer, "passed") << level;  // its snapshot is made when it first reads
      EXPECT_EQ(seen_, 150) << level;
    }
    SetUp();
    EXPECT_EQ(second_gets(34, "COMMIT", 33, level), is(dialect::postgres) ? "40001" : "stale");
  }
}

TEST(SqlGateOnMariadb, NoticesThatDdlHasCommitted) {
  const connection database = databases::connect(dialect::mariadb);
  database.run("DROP TABLE IF EXISTS sallyport_fence, made_inside");
  for (const auto& each : sql_gate::schema(dialect::mariadb)) database(each);
  const sql_gate gate{dialect::mariadb, "orders"};

  EXPECT_EQ(code_of([&] {
              (void)gate.run(database, exclusive(3),
                             [&] { database.run("CREATE TABLE made_inside (n INT)"); });
            }),
            errc::store_refused);

  EXPECT_EQ(gate.run(database, exclusive(3), nothing), verdict::passed);
  database.run("DROP TABLE made_inside");
}

TEST(SqlGateOnMariadb, RefusesAnOldSnapshotWhereTheServerIsToldTo) {
  const connection database = databases::connect(dialect::mariadb);
  const connection other = databases::connect(dialect::mariadb);
  database.run("DROP TABLE IF EXISTS sallyport_fence");
  for (const auto& each : sql_gate::schema(dialect::mariadb)) database(each);
  const sql_gate gate{dialect::mariadb, "orders"};
  EXPECT_EQ(gate.run(database, exclusive(1), nothing), verdict::passed);
  database.run("SET SESSION innodb_snapshot_isolation = 1");

  database.run("START TRANSACTION WITH CONSISTENT SNAPSHOT");
  EXPECT_EQ(gate.run(other, exclusive(2), nothing), verdict::passed);

  EXPECT_EQ(state_of([&] { database(gate.admit(exclusive(3))); }), "HY000");
  database.run("ROLLBACK");
}

TEST(SqlGateOnPostgres, CommitsNothingWhenTheActionSwallowsAnError) {
  const connection database = databases::connect(dialect::postgres);
  database.run("DROP TABLE IF EXISTS sallyport_fence");
  for (const auto& each : sql_gate::schema(dialect::postgres)) database(each);
  const sql_gate gate{dialect::postgres, "orders"};

  EXPECT_EQ(state_of([&] {
              (void)gate.run(database, exclusive(3), [&] {
                EXPECT_EQ(state_of([&] { database.run("SELECT 1 / 0"); }), "22012");
              });
            }),
            "25P02");

  EXPECT_EQ(gate.run(database, exclusive(2), nothing), verdict::passed);
}

TEST(SqlGateOnPostgres, KeepsItsNumbersInASchema) {
  const connection database = databases::connect(dialect::postgres);
  database.run("CREATE SCHEMA \"fences of all\"");
  const sql_gate gate{dialect::postgres, "orders", {.lock = {}, .table = "fences of all.numbers"}};
  for (const auto& each : sql_gate::schema(dialect::postgres, "fences of all.numbers"))
    database(each);

  EXPECT_EQ(gate.run(database, exclusive(3), nothing), verdict::passed);

  EXPECT_EQ(database.number("SELECT newest_exclusive FROM \"fences of all\".numbers"), 3);
  database.run("DROP SCHEMA \"fences of all\" CASCADE");
  EXPECT_EQ(code_of([] { (void)sql_gate::schema(dialect::postgres, ".numbers"); }),
            errc::bad_option);
}

// The last of the file, since they end the connections of whoever is before them.
class SqlGateRestart : public OnDatabase {};

INSTANTIATE_TEST_SUITE_P(On, SqlGateRestart, testing::Values(dialect::postgres, dialect::mariadb),
                         name_of);

TEST_P(SqlGateRestart, KeepsTheNumbersOverAKill) {
  const sql_gate gate{GetParam(), "orders"};
  EXPECT_EQ(gate.run(connect(), exclusive(8), nothing), verdict::passed);

  if (is(dialect::postgres)) {
    databases::postgres().kill();
    databases::postgres().start();
  } else {
    databases::mariadb().kill();
    databases::mariadb().start();
  }

  EXPECT_EQ(gate.run(connect(), exclusive(7), nothing), verdict::stale);
  EXPECT_EQ(gate.run(connect(), exclusive(8), nothing), verdict::passed);
}

class SqlRowGate : public OnDatabase {};

INSTANTIATE_TEST_SUITE_P(On, SqlRowGate,
                         testing::Values(dialect::postgres, dialect::mariadb, dialect::sqlite),
                         name_of);

// docs/fencing.md shows this code.
TEST_P(SqlRowGate, RefusesTheLostUpdate) {
  const fake_lease first{33};
  const fake_lease second{34};
  const connection database = connect();
  const auto your_database = GetParam();

  const sql_row_gate accounts{your_database, "accounts", "id"};

  const auto seen_by_first = balance(database);
  const row_verdict for_second =
      accounts.update(database, second, 42, {{"balance", seen_by_first + 50}});
  const row_verdict for_first =
      accounts.update(database, first, 42, {{"balance", seen_by_first - 30}});
  const row_verdict for_nobody = accounts.update(database, first, 43, {{"balance", 0}});
  // for_second is written, for_first is stale, for_nobody is no_such_row.

  EXPECT_EQ(for_second, row_verdict::written);
  EXPECT_EQ(for_first, row_verdict::stale);
  EXPECT_EQ(for_nobody, row_verdict::no_such_row);
  EXPECT_EQ(balance(database), 150);
}

TEST_P(SqlRowGate, TakesTheSameTokenAgainAndExactly) {
  const connection database = connect();
  const sql_row_gate accounts{GetParam(), "accounts", "id"};
  const std::uint64_t large = sql_gate::max_token;

  EXPECT_EQ(accounts.update(database, exclusive(large - 1), 42, {{"balance", 1}}),
            row_verdict::written);
  EXPECT_EQ(accounts.update(database, exclusive(large - 1), 42, {{"balance", 1}}),
            row_verdict::written);
  EXPECT_EQ(accounts.update(database, exclusive(large - 2), 42, {{"balance", 2}}),
            row_verdict::stale);
  EXPECT_EQ(accounts.update(database, exclusive(large), 42, {{"balance", 3}}),
            row_verdict::written);
  database.run("UPDATE accounts SET fence = NULL");
  EXPECT_EQ(accounts.update(database, exclusive(1), 42, {{"balance", std::monostate{}}}),
            row_verdict::written);
}

TEST_P(SqlRowGate, RefusesWhatItCannotSay) {
  const sql_row_gate accounts{GetParam(), "accounts", "id"};
  const auto code = [&](const pass& shown, const std::vector<sql_row_gate::assignment>& set) {
    return code_of([&] { (void)accounts.update(shown, 42, set); });
  };

  EXPECT_EQ(code(shared(3), {{"balance", 1}}), errc::bad_option);
  EXPECT_EQ(code(exclusive(0), {{"balance", 1}}), errc::no_fencing);
  EXPECT_EQ(code(exclusive(sql_gate::max_token + 1), {{"balance", 1}}), errc::bad_option);
  EXPECT_EQ(code(exclusive(3), {}), errc::bad_option);
  EXPECT_EQ(code(exclusive(3), {{"fence", 1}}), errc::bad_option);
  EXPECT_EQ(code(exclusive(3), {{"id", 1}}), errc::bad_option);
  EXPECT_EQ(code(exclusive(3), {{"balance", 1}, {"balance", 2}}), errc::bad_option);
  EXPECT_EQ(code(exclusive(3), {{"a\nb", 1}}), errc::bad_option);
  EXPECT_EQ(code_of([] { sql_row_gate(GetParam(), "accounts", "id", "id"); }), errc::bad_option);
}

TEST(SqlRowGateOnMariadb, DoesNotNeedTheCountOfRowsThatWereFound) {
  const auto database = connect_to<kit::mariadb_executor>(
      kit::mariadb_executor_options{.port = databases::mariadb().port(), .found_rows = false});
  database.run("DROP TABLE IF EXISTS accounts");
  database.run("CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint, fence bigint)");
  database.run("INSERT INTO accounts VALUES (42, 100, 0)");
  const sql_row_gate accounts{dialect::mariadb, "accounts", "id"};

  EXPECT_EQ(accounts.update(database, exclusive(3), 42, {{"balance", 1}}), row_verdict::written);
  EXPECT_EQ(accounts.update(database, exclusive(3), 42, {{"balance", 1}}), row_verdict::written);
  EXPECT_EQ(accounts.update(database, exclusive(2), 42, {{"balance", 1}}), row_verdict::stale);
  EXPECT_EQ(accounts.update(database, exclusive(3), 43, {{"balance", 1}}),
            row_verdict::no_such_row);
}

TEST(SqlRowGateOnMariadb, SeesTheNewestCommitFromInsideAnOldSnapshot) {
  const connection database = databases::connect(dialect::mariadb);
  const connection other = databases::connect(dialect::mariadb);
  database.run("DROP TABLE IF EXISTS accounts");
  database.run("CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint, fence bigint)");
  database.run("INSERT INTO accounts VALUES (42, 100, 0)");
  const sql_row_gate accounts{dialect::mariadb, "accounts", "id"};

  database.run("START TRANSACTION WITH CONSISTENT SNAPSHOT");
  EXPECT_EQ(accounts.update(other, exclusive(4), 42, {{"balance", 1}}), row_verdict::written);

  EXPECT_EQ(accounts.update(database, exclusive(3), 42, {{"balance", 2}}), row_verdict::stale);
  database.run("ROLLBACK");
}

}  // namespace
}  // namespace sallyport::fence
