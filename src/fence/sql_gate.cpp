#include "fence/door.hpp"
#include "fence/gate_state.hpp"
#include "fence/sql_words.hpp"
#include <sallyport/error.hpp>
#include <sallyport/fence_sql.hpp>

#include <utility>
#include <variant>

namespace sallyport::fence {
namespace {

using sql::dialect;
using sql::placeholder;
using sql::statement;

/// The texts that differ from one mode to the other. Both judge by the row as it is, which the
/// statement has locked, and write a row that says by itself whether the pass went through: an
/// exclusive token passed iff it is the newest and no reader has it; a shared one iff no writer is newer.
struct judging {
  std::string_view column;    // which number may be raised
  std::string_view values;    // the new row's two numbers; \\1 is a parameter
  std::string_view improves;  // of what is kept (k.) and what is shown (n.)
  std::string_view passed;    // of the row as written
};

judging judging_of(lock_mode mode) {
  switch (mode) {
    case lock_mode::exclusive:
      return {"newest_exclusive", "\1, 0",
              "k.newest_exclusive <= n.newest_exclusive AND k.newest_shared < n.newest_exclusive",
              "newest_exclusive = \1 AND newest_shared < \1"};
    case lock_mode::shared:
      break;
  }
  return {"newest_shared", "0, \1",
          "k.newest_exclusive <= n.newest_shared AND k.newest_shared < n.newest_shared",
          "newest_exclusive <= \1 AND newest_shared >= \1"};
}

/// Puts `with` for every `what`.
std::string replaced(std::string text, std::string_view what, std::string_view with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
  return text;
}

/// Puts n.COLUMN as MariaDB says it inside of ON DUPLICATE KEY UPDATE.
std::string in_mariadb(std::string text) {
  text = replaced(std::move(text), "k.", "");
  text = replaced(std::move(text), "n.lock_name", "VALUES(lock_name)");
  text = replaced(std::move(text), "n.newest_exclusive", "VALUES(newest_exclusive)");
  return replaced(std::move(text), "n.newest_shared", "VALUES(newest_shared)");
}

/// Puts a placeholder for every mark of a parameter. No identifier has a control character.
std::string with_placeholders(dialect whose, const std::string& text) {
  std::string out;
  std::size_t index = 0;
  for (const char each : text) {
    if (each == '\1') {
      out += placeholder(whose, ++index);
    } else {
      out += each;
    }
  }
  return out;
}

std::string begin_of(dialect whose) {
  switch (whose) {
    case dialect::postgres:
      return "BEGIN";
    case dialect::mariadb:
      return "START TRANSACTION";
    case dialect::sqlite:
      return "BEGIN IMMEDIATE";  // a reader that becomes a writer is refused, and not made to wait
  }
  return {};
}

void carry_out(const sql::executor& database, std::string text) {
  (void)database({.text = std::move(text), .parameters = {}});
}

/// Ends the transaction, and leaves no pass behind, however the action was left.
class opened_transaction {
 public:
  opened_transaction(const sql::executor& database, dialect whose, bool declares)
      : database_(database), dialect_(whose), declares_(declares) {
    carry_out(database_, begin_of(whose));
  }
  opened_transaction(const opened_transaction&) = delete;
  opened_transaction& operator=(const opened_transaction&) = delete;
  ~opened_transaction() {
    if (open_) quietly("ROLLBACK");
    // PostgreSQL's ends with the transaction.
    if (declares_ && dialect_ == dialect::mariadb) quietly(withdraw_pass(dialect_).text);
  }

  void commit() {
    // What a COMMIT that fails leaves behind is rolled back; one that did its work leaves nothing.
    carry_out(database_, "COMMIT");
    open_ = false;
  }

 private:
  // The first failure is the one to tell; a connection that can't roll back is gone, and its
  // transaction with it.
  void quietly(std::string text) noexcept {
    try {
      carry_out(database_, std::move(text));
    } catch (...) {
      return;
    }
  }

  const sql::executor& database_;
  const dialect dialect_;
  const bool declares_;
  bool open_ = true;
};

}  // namespace

sql_gate::sql_gate(dialect whose, std::string resource, const sql_gate_options& options)
    : dialect_(whose),
      resource_(std::move(resource)),
      lock_(options.lock),
      table_(quoted_table(whose, split_table(options.table))),
      declares_pass_(options.declares_pass) {
  check_resource(resource_);
  if (!lock_.empty()) {
    value_or_throw(check_lock(lock_));
    check_lock_text(lock_);
  }
  if (declares_pass_) (void)withdraw_pass(whose);  // says whether that is possible
}

std::vector<statement> sql_gate::schema(dialect whose, const std::string& table) {
  const std::string name = quoted_table(whose, split_table(table));
  const auto made = [&](std::string_view text, std::string_view end) {
    return "CREATE TABLE IF NOT EXISTS " + name + " (\n  resource " + std::string(text) +
           " NOT NULL PRIMARY KEY,\n  lock_name " +
           (whose == dialect::mariadb ? "VARBINARY(2048)" : std::string(text)) +
           " NOT NULL,\n"
           "  newest_exclusive BIGINT NOT NULL CHECK (newest_exclusive >= 0),\n"
           "  newest_shared BIGINT NOT NULL CHECK (newest_shared >= 0)\n)" +
           std::string(end);
  };
  switch (whose) {
    case dialect::postgres:
      return {{.text = made("TEXT COLLATE \"C\"", ""), .parameters = {}}};
    case dialect::mariadb:
      // Compared byte by byte: the text types of MariaDB ignore blanks at the end.
      return {{.text = made("VARBINARY(255)", " ENGINE=InnoDB"), .parameters = {}}};
    case dialect::sqlite:
      return {{.text = made("TEXT COLLATE BINARY", ""), .parameters = {}}};
  }
  return {};
}

statement sql_gate::admit(const pass& shown) const {
  const std::int64_t token = checked_token(shown);
  if (!lock_.empty() && shown.lock != lock_) {
    return {.text = "SELECT 2", .parameters = {}};  // the row need not be asked
  }
  const judging by = judging_of(shown.mode);
  const std::string column{by.column};
  const std::string raised = "k.lock_name = n.lock_name AND " + std::string(by.improves);
  const bool mariadb = dialect_ == dialect::mariadb;
  const std::string otherwise =
      mariadb ? " ON DUPLICATE KEY UPDATE " + column + " = CASE WHEN " + in_mariadb(raised) +
                    " THEN VALUES(" + column + ") ELSE " + column + " END"
              : " ON CONFLICT (resource) DO UPDATE SET " + column + " = CASE WHEN " +
                    replaced(replaced(raised, "k.", "kept."), "n.", "EXCLUDED.") +
                    " THEN EXCLUDED." + column + " ELSE kept." + column + " END";
  return {
      .text = with_placeholders(
          dialect_, "INSERT INTO " + table_ + (mariadb ? "" : " AS kept") +
                        " (resource, lock_name, newest_exclusive, newest_shared) VALUES (\1, \1, " +
                        std::string(by.values) + ")" + otherwise +
                        " RETURNING CASE WHEN lock_name <> \1 THEN 2 WHEN " +
                        std::string(by.passed) + " THEN 0 ELSE 1 END"),
      .parameters = {resource_, shown.lock, token, shown.lock, token, token}};
}

statement sql_gate::rebind(const std::string& from, const pass& shown, rebinding kind) const {
  value_or_throw(check_rebinding(from, shown));
  check_lock_text(from);
  const std::int64_t token = checked_token(shown);
  // Of the row as it was: whether it is to be bound anew, and what its numbers count for.
  const bool restarts = kind == rebinding::restarts_numbers;
  const std::string newest = "newest_exclusive <= \1 AND newest_shared < \1";
  const std::string passes = restarts ? "(lock_name = \1 OR (lock_name = \1 AND " + newest + "))"
                                      : "(lock_name IN (\1, \1) AND " + newest + ")";
  const std::string shared =
      restarts ? "CASE WHEN lock_name = \1 THEN 0 ELSE newest_shared END" : "newest_shared";
  std::vector<sql::value> conditions{from, shown.lock, token, token};
  std::vector<sql::value> of_shared;
  if (restarts) of_shared.emplace_back(from);
  std::string text;
  std::vector<sql::value> parameters;
  const auto add = [&](const std::string& part, const std::vector<sql::value>& bound) {
    text += part;
    parameters.insert(parameters.end(), bound.begin(), bound.end());
  };
  const auto chosen = [&](std::string_view column, const std::string& value,
                          const std::vector<sql::value>& bound) {
    add(std::string(column) + " = CASE WHEN " + passes, conditions);
    add(" THEN " + value, bound);
    add(" ELSE " + std::string(column) + " END", {});
  };
  if (dialect_ == dialect::mariadb) {
    // It has no UPDATE ... RETURNING. Assignments see what those before them have written; what they
    // write leaves the judgement as it was, and the lock's name comes last.
    add("INSERT INTO " + table_ +
            " (resource, lock_name, newest_exclusive, newest_shared) SELECT r, l, e, s FROM "
            "(SELECT "
            "resource AS r, lock_name AS l, newest_exclusive AS e, newest_shared AS s FROM " +
            table_ + " WHERE resource = \1) AS k ON DUPLICATE KEY UPDATE ",
        {resource_});
  } else {
    add("UPDATE " + table_ + " SET ", {});
  }
  chosen("newest_shared", shared, of_shared);
  add(", ", {});
  chosen("newest_exclusive", "\1", {token});
  add(", ", {});
  chosen("lock_name", "\1", {shown.lock});
  if (dialect_ != dialect::mariadb) add(" WHERE resource = \1", {resource_});
  add(" RETURNING CASE WHEN lock_name NOT IN (\1, \1) THEN 2 WHEN lock_name = \1 AND "
      "newest_exclusive = \1 AND newest_shared < \1 THEN 0 ELSE 1 END",
      {from, shown.lock, shown.lock, token, token});
  return {.text = with_placeholders(dialect_, text), .parameters = std::move(parameters)};
}

verdict sql_gate::rebind(const sql::executor& database, const std::string& from, const pass& shown,
                         rebinding kind) const {
  const sql::answer said = database(rebind(from, shown, kind));
  return said.rows.empty() ? verdict::wrong_lock : verdict_of(said);
}

verdict sql_gate::verdict_of(std::int64_t number) {
  switch (number) {
    case 0:
      return verdict::passed;
    case 1:
      return verdict::stale;
    case 2:
      return verdict::wrong_lock;
    default:  // it comes from outside
      throw lock_error(errc::store_refused, "fencing gate: the database answered " +
                                                std::to_string(number) + ", which is no verdict");
  }
}

verdict sql_gate::verdict_of(const sql::answer& answered) {
  if (answered.rows.size() == 1 && answered.rows.front().size() == 1) {
    const sql::value& said = answered.rows.front().front();
    if (const auto* const number = std::get_if<std::int64_t>(&said)) return verdict_of(*number);
    // Some clients give every value as text.
    if (const auto* const text = std::get_if<std::string>(&said);
        text != nullptr && text->size() == 1 && *text >= "0" && *text <= "2") {
      return verdict_of(text->front() - '0');
    }
  }
  throw lock_error(errc::store_refused,
                   "fencing gate: the database's answer is not one row with one number; does the "
                   "executor return the rows of RETURNING?");
}

statement sql_gate::still_inside(const pass& shown) const {
  const bool exclusive = shown.mode == lock_mode::exclusive;
  const std::string row = "EXISTS (SELECT 1 FROM " + table_ +
                          " WHERE resource = \1 AND lock_name = \1 AND " +
                          (exclusive ? "newest_exclusive = \1" : "newest_shared >= \1") + ")";
  std::string in_transaction;
  switch (dialect_) {
    case dialect::postgres:  // of a transaction that has written; after an error it answers nothing
      in_transaction = "txid_current_if_assigned() IS NOT NULL AND ";
      break;
    case dialect::mariadb:
      in_transaction = "@@in_transaction = 1 AND ";
      break;
    case dialect::sqlite:
      break;
  }
  return {.text = with_placeholders(
              dialect_, "SELECT CASE WHEN " + in_transaction + row + " THEN 0 ELSE 3 END"),
          .parameters = {resource_, shown.lock, checked_token(shown)}};
}

verdict sql_gate::run_inside(const sql::executor& database, const pass& shown,
                             const std::function<void()>& action) const {
  const statement judge = admit(shown);  // what it refuses, it refuses before anything is sent

  opened_transaction inside{database, dialect_, declares_pass_};
  const verdict said = verdict_of(database(judge));
  if (said != verdict::passed) return said;
  if (declares_pass_) (void)database(declare_pass(dialect_, shown));
  action();
  const sql::answer whole = database(still_inside(shown));
  const bool unharmed = whole.rows.size() == 1 && whole.rows.front().size() == 1 &&
                        (whole.rows.front().front() == sql::value{std::int64_t{0}} ||
                         whole.rows.front().front() == sql::value{std::string{"0"}});
  if (!unharmed) {
    throw lock_error(errc::store_refused,
                     "fencing gate: the transaction ended inside of the action (by COMMIT, "
                     "ROLLBACK, or on MariaDB by DDL, which commits), so that parts of it may have "
                     "run outside of the gate");
  }
  inside.commit();
  return verdict::passed;
}

}  // namespace sallyport::fence
