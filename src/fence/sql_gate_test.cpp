#include "fence/gate_testing.hpp"
#include <sallyport/error.hpp>
#include <sallyport/fence_sql.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

// What is sent, word by word; what databases make of it is in tests/fencing.

namespace sallyport::fence {
namespace {

using sql::dialect;
using sql::value;

TEST(SqlGateWords, AreOneStatementWithParametersOnly) {
  const sql_gate gate{dialect::postgres, "it's", {.lock = {}, .table = "fences.of all"}};

  const sql::statement said = gate.admit(exclusive(34));

  EXPECT_EQ(said.text,
            "INSERT INTO \"fences\".\"of all\" AS kept"
            " (resource, lock_name, newest_exclusive, newest_shared) VALUES ($1, $2, $3, 0)"
            " ON CONFLICT (resource) DO UPDATE SET newest_exclusive = CASE WHEN"
            " kept.lock_name = EXCLUDED.lock_name AND"
            " kept.newest_exclusive <= EXCLUDED.newest_exclusive AND"
            " kept.newest_shared < EXCLUDED.newest_exclusive"
            " THEN EXCLUDED.newest_exclusive ELSE kept.newest_exclusive END"
            " RETURNING CASE WHEN lock_name <> $4 THEN 2"
            " WHEN newest_exclusive = $5 AND newest_shared < $6 THEN 0 ELSE 1 END");
  const value token = std::int64_t{34};
  EXPECT_EQ(said.parameters, (std::vector<value>{std::string("it's"), std::string("orders"), token,
                                                 std::string("orders"), token, token}));
}

TEST(SqlGateWords, AreWhatMariadbSays) {
  const sql::statement said = sql_gate{dialect::mariadb, "orders"}.admit(shared(7));

  EXPECT_EQ(
      said.text,
      "INSERT INTO `sallyport_fence`"
      " (resource, lock_name, newest_exclusive, newest_shared) VALUES (?, ?, 0, ?)"
      " ON DUPLICATE KEY UPDATE newest_shared = CASE WHEN"
      " lock_name = VALUES(lock_name) AND newest_exclusive <= VALUES(newest_shared) AND"
      " newest_shared < VALUES(newest_shared) THEN VALUES(newest_shared) ELSE newest_shared END"
      " RETURNING CASE WHEN lock_name <> ? THEN 2"
      " WHEN newest_exclusive <= ? AND newest_shared >= ? THEN 0 ELSE 1 END");
  EXPECT_EQ(said.parameters.size(), 6U);
}

TEST(SqlGateWords, NeedNoRowToRefuseAnotherLock) {
  const sql_gate gate{dialect::postgres, "orders", {.lock = "invoices"}};

  EXPECT_EQ(gate.admit(exclusive(34)).text, "SELECT 2");
}

TEST(SqlGateWords, TakeOnlyAVerdictForAnAnswer) {
  EXPECT_EQ(sql_gate::verdict_of({.rows = {{std::int64_t{0}}}}), verdict::passed);
  EXPECT_EQ(sql_gate::verdict_of({.rows = {{std::string{"1"}}}}), verdict::stale);
  EXPECT_EQ(sql_gate::verdict_of(2), verdict::wrong_lock);
  for (const sql::answer& other :
       {sql::answer{}, sql::answer{.rows = {{}}}, sql::answer{.rows = {{std::int64_t{3}}}},
        sql::answer{.rows = {{std::string{"passed"}}}}, sql::answer{.rows = {{value{}}}},
        sql::answer{.rows = {{std::int64_t{0}}, {std::int64_t{0}}}}}) {
    EXPECT_THROW((void)sql_gate::verdict_of(other), lock_error);
  }
}

TEST(SqlRowGateWords, CompareTheRowsOwnNumber) {
  const sql_row_gate accounts{dialect::postgres, "accounts", "id"};

  const sql::statement said =
      accounts.update(exclusive(34), 42, {{"balance", 150}, {"no\"te", std::string("x")}});

  EXPECT_EQ(said.text,
            "UPDATE \"accounts\" SET \"balance\" = $1, \"no\"\"te\" = $2, \"fence\" = $3"
            " WHERE \"id\" = $4 AND COALESCE(\"fence\", 0) <= $5");
  EXPECT_EQ(said.parameters,
            (std::vector<value>{std::int64_t{150}, std::string("x"), std::int64_t{34},
                                std::int64_t{42}, std::int64_t{34}}));
}

TEST(SqlPass, IsDeclaredInWords) {
  const sql::statement postgres = declare_pass(dialect::postgres, exclusive(34));
  const sql::statement mariadb = declare_pass(dialect::mariadb, shared(sql_gate::max_token));

  EXPECT_EQ(postgres.text, "SELECT set_config('sallyport.pass', $1, true)");
  EXPECT_EQ(postgres.parameters, (std::vector<value>{std::string("exclusive 34 orders")}));
  EXPECT_EQ(mariadb.text, "SET @sallyport_pass = ?");
  EXPECT_EQ(mariadb.parameters,
            (std::vector<value>{std::string("shared 9223372036854775807 orders")}));
}

TEST(SqlScript, HasADelimiterThatIsNotInTheStatement) {
  const std::vector<sql::statement> two{{.text = "SELECT 1", .parameters = {}},
                                        {.text = "SELECT '//'", .parameters = {}}};

  EXPECT_EQ(sql_script(dialect::postgres, two), "SELECT 1;\n\nSELECT '//';\n\n");
  EXPECT_EQ(sql_script(dialect::mariadb, two),
            "DELIMITER //\nSELECT 1\n//\nDELIMITER ;\n\n"
            "DELIMITER ///\nSELECT '//'\n///\nDELIMITER ;\n\n");
}

}  // namespace
}  // namespace sallyport::fence
