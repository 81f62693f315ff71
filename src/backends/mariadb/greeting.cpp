#include "backends/mariadb/greeting.hpp"

#include "backends/mariadb/answers.hpp"
#include "backends/mariadb/schema.hpp"
#include "backends/mariadb/speech.hpp"
#include "backends/sql/promises.hpp"
#include "base/uri.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace sallyport::backends::mariadb {
namespace {

/// What the server was asked for, by name.
std::map<std::string, std::string> settings_in(const reply& said) {
  std::map<std::string, std::string> all;
  for (const auto& row : said.rows) {
    if (row.size() == 2) all[row[0]] = row[1];
  }
  return all;
}

bool is_on(const std::string& value) { return value == "ON" || value == "1"; }

/// "10.11.6-MariaDB-log"; MariaDB before 10.6 and MySQL before 8.0.29 can't make a procedure only
/// where there is none, or lack what ours use.
bool too_old(const std::string& version, bool mariadb) {
  std::array<unsigned, 3> numbers{};
  std::size_t at = 0;
  for (unsigned& each : numbers) {
    std::size_t end = at;
    while (end < version.size() && version[end] >= '0' && version[end] <= '9') ++end;
    each = base::parse_number(std::string_view(version).substr(at, end - at), 0, 1'000'000)
               .value_or(0);
    at = std::min(end + 1, version.size());
  }
  const unsigned whole =
      numbers[0] * 10'000 + std::min(numbers[1], 99U) * 100 + std::min(numbers[2], 99U);
  return whole < (mariadb ? 100'600U : 80'029U);
}

}  // namespace

greeting::saying greeting::next(const reply* said) {
  if (said == nullptr) return set_session();
  // Whether tables and procedures are there is asked in one way: by their version.
  const bool may_fail = step_ == step::asked_version;
  if (said->is_error() && !may_fail) {
    return tl::unexpected(step_ >= step::took_turn ? no_rights(*said) : failure_of(*said));
  }
  switch (step_) {
    case step::set_session:
      step_ = step::set_isolation;
      return "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
    case step::set_isolation:
      step_ = step::asked_facts;
      return "SHOW VARIABLES WHERE Variable_name IN ('version', 'innodb_flush_log_at_trx_commit', "
             "'innodb_doublewrite', 'innodb_flush_method', 'log_bin', 'binlog_format', 'wsrep_on')";
    case step::asked_facts:
      return hear_facts(*said);
    case step::asked_version:
      return hear_version(*said);
    case step::took_turn:
      step_ = step::asked_foreigners;
      return question_for_foreigners(where_.prefix);
    case step::asked_foreigners:
      return hear_foreigners(*said);
    case step::installing:
      return install_next();
    case step::gave_turn:
      return ask_version();
  }
  return base::fail(errc::unavailable, "a greeting without an end");
}

std::string greeting::set_session() {
  step_ = step::set_session;
  // Before anything is asked: a user's sessions, or all of a server, may begin with settings that change
  // what a question means, how many rows its answer has, and what time it is. DEFAULT would be the
  // server's own setting, which may be the odd one; only of the time it is the clock's.
  // A transaction that keeps a lock's name for longer than innodb_lock_wait_timeout is stuck, and those
  // behind it go on.
  std::string all = schema_mode;
  all +=
      ", character_set_client = utf8mb4, character_set_connection = utf8mb4, "
      "character_set_results = utf8mb4, autocommit = 1, completion_type = 0, "
      "sql_select_limit = 18446744073709551615, max_join_size = 18446744073709551615, "
      "sql_big_selects = 1, sql_safe_updates = 0, sql_auto_is_null = 0, timestamp = DEFAULT, "
      "innodb_lock_wait_timeout = 2, lock_wait_timeout = 5";
  return all;
}

greeting::saying greeting::ask_version() {
  step_ = step::asked_version;
  return "SELECT version, store FROM " + quoted(where_.prefix + "state") + " WHERE one = 1";
}

std::string greeting::turn() const {
  // In the whole server, of at most 64 characters.
  return "LEFT(CONCAT('sallyport:', MD5(CONCAT(DATABASE(), '/" + where_.prefix + "'))), 64)";
}

greeting::saying greeting::hear_facts(const reply& said) {
  auto found = settings_in(said);
  if (found["version"].empty()) {
    return base::fail(errc::store_refused, "this is no MariaDB server");
  }
  facts_.version = found["version"];
  facts_.mariadb = facts_.version.find("MariaDB") != std::string::npos;
  const std::string& flush = found["innodb_flush_log_at_trx_commit"];
  facts_.flushes = (flush == "1" || flush == "3") && found["innodb_doublewrite"] != "OFF" &&
                   found["innodb_flush_method"] != "nosync";
  facts_.survives = facts_.flushes || flush == "2";
  facts_.galera = is_on(found["wsrep_on"]);
  if (too_old(facts_.version, facts_.mariadb)) {
    return base::fail(errc::store_refused,
                      "it is version " + facts_.version +
                          ", and Sallyport needs MariaDB 10.6 or later (MySQL: 8.0.29)");
  }
  if (is_on(found["log_bin"]) && found["binlog_format"] == "STATEMENT") {
    return base::fail(errc::store_refused,
                      "its binlog_format is STATEMENT, with which no transaction can be read "
                      "committed: set MIXED or ROW");
  }
  return ask_version();
}

greeting::saying greeting::hear_version(const reply& said) {
  const bool missing = said.is_error() ? said.error_code == "1146" || said.error_code == "1142" ||
                                             said.error_code == "1054"
                                       : said.rows.empty();
  if (missing && !made_schema_) {
    made_schema_ = true;
    step_ = step::took_turn;
    // Tables and procedures are not made in a transaction: one client after the other makes them.
    return "SELECT GET_LOCK(" + turn() + ", 10)";
  }
  if (said.is_error()) return tl::unexpected(no_rights(said));
  if (said.rows.size() != 1 || said.rows.front().size() != 2) {
    return base::fail(errc::store_refused,
                      "the table " + quoted(where_.prefix + "state") +
                          " is not as Sallyport made it; name another prefix (?prefix=...)");
  }
  const auto& row = said.rows.front();
  if (row[0] != std::to_string(schema_version)) {
    return base::fail(errc::store_refused,
                      "the tables " + quoted(where_.prefix + "...") + " have version " + row[0] +
                          ", and this program needs " + std::to_string(schema_version));
  }
  facts_.store = row[1];
  return std::optional<std::string>{};
}

greeting::saying greeting::hear_foreigners(const reply& said) {
  if (!said.rows.empty() && !said.rows.front().empty()) {
    return base::fail(errc::store_refused,
                      "the database has " + said.rows.front().front() +
                          ", which is not Sallyport's; nothing was changed. Name another prefix "
                          "(?prefix=...), or move it away");
  }
  step_ = step::installing;
  statements_ = schema_statements(where_.prefix);
  return install_next();
}

greeting::saying greeting::install_next() {
  if (next_statement_ < statements_.size()) return statements_[next_statement_++];
  step_ = step::gave_turn;
  return "SELECT RELEASE_LOCK(" + turn() + ")";
}

base::failure greeting::no_rights(const reply& said) const {
  // 1044: the database, 1142: a table, 1370: a procedure, 1227: some right of an administrator.
  if (said.error_code == "1044" || said.error_code == "1142" || said.error_code == "1370" ||
      said.error_code == "1227" || said.error_code == "1419") {
    return {make_error_code(errc::store_refused),
            "the user may not make Sallyport's tables and procedures (CREATE, CREATE ROUTINE): " +
                said.error + " (" + said.error_code +
                "); let somebody who may run what 'sallyport schema ADDRESS' prints"};
  }
  return failure_of(said);
}

sallyport::capabilities capabilities_of(const std::optional<server_facts>& facts) {
  sallyport::capabilities all = sql::promises();
  all.survives_store_restart = facts && facts->flushes;
  all.caveats = {
      std::string(sql::clock_caveat),
      "A server that is restored from old data, or a replica that is promoted and lacks what was "
      "committed last, forgets locks and tokens that came later: tokens may come again.",
      "The server tells nobody that a turn has come: waiters ask, the first in line every 1 to 2 "
      "ms at the beginning, the others less often, and all of them less the longer nothing moves.",
  };
  if (!facts) {
    all.caveats.emplace_back(sql::unreached_caveat);
    return all;
  }
  if (!facts->mariadb) {
    all.caveats.emplace_back("The server is not MariaDB (it says " + facts->version +
                             "): it speaks the same protocol, but Sallyport was not tested with "
                             "it.");
  }
  if (!facts->flushes) {
    all.caveats.emplace_back(
        facts->survives
            ? "innodb_flush_log_at_trx_commit, innodb_doublewrite or innodb_flush_method is "
              "relaxed: what was committed last survives a crash of the server, but not one of its "
              "machine; then locks are forgotten, and tokens may come again."
            : "innodb_flush_log_at_trx_commit is 0: a crash of the server forgets what was "
              "committed in the last second; then two may hold one lock, and tokens may come "
              "again.");
  }
  if (facts->galera) {
    all.caveats.emplace_back(
        "The server is a node of a Galera cluster, with which Sallyport was not tested: let all "
        "clients use one and the same node.");
  }
  return all;
}

}  // namespace sallyport::backends::mariadb
