#pragma once

#include <sallyport/fence.hpp>
#include <sallyport/fence_pass.hpp>
#include <sallyport/sql.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sallyport::fence {

/// How a sql_gate behaves. Use designated initialisers; the constructor validates.
struct sql_gate_options {
  /// Binds the gate to this lock. Empty: the lock that the row remembers, or else the first that
  /// passes.
  std::string lock{};
  /// The table that keeps the numbers of all gates: `name`, or `schema.name`.
  std::string table = "sallyport_fence";
  /// run() also declares the pass, for tables that refuse writes without one (sql_trigger_ddl).
  bool declares_pass = false;
};

/// A gate for data that lives in a database: the check is a statement in the transaction that writes.
/// It opens no connection: it says what to send, or sends it through the program's own executor.
///
///     const sql_gate gate{sql::dialect::postgres, "orders"};
///     const verdict said = gate.run(database, lease, [&] {
///       database({"UPDATE accounts SET balance = 150 WHERE id = 42"});
///     });
///
/// The rule is that of `gate`, for the numbers that the database keeps in one row a resource, in a
/// table that schema() makes. One statement (admit) locks that row, judges the pass, raises the
/// number and answers; the row stays locked until the transaction ends. So a newer holder waits for
/// the commit, a late one is refused, and what the transaction reads after it is what the holders
/// before have committed. What differs from the other gates:
/// - Numbers and data are committed together, or neither: a transaction that is rolled back takes its
///   number back, too. That is safe for what it wrote, since nothing of it is left; but until a
///   newer holder has committed something, an older one still passes. A holder that wants the gate shut
///   behind it at once, because it reads now and writes later, commits an empty run() first.
/// - Actions run one at a time, shared ones too: they share a row lock.
/// - A pass that waits for another transaction waits as long as the database lets it (PostgreSQL:
///   lock_timeout; MariaDB: innodb_lock_wait_timeout).
/// - Tokens above max_token do not fit a BIGINT and are refused with lock_error. No store of ours
///   makes them.
///
/// For those who call admit() in transactions of their own:
/// - It is the first statement of the transaction, before the first read and outside of savepoints:
///   to roll back to an earlier savepoint takes the number back, and with it the lock of the row. On
///   MariaDB without WITH CONSISTENT SNAPSHOT.
/// - Every error means "not admitted": roll back. Above READ COMMITTED, PostgreSQL answers 40001
///   (as does MariaDB with innodb_snapshot_isolation, as error 1020) where it had to wait for
///   somebody who passed: start the transaction again.
/// - With autocommit and no transaction it is a check before the act, and no fence.
/// - What commits by itself ends the gate's hold: on MariaDB, DDL inside of the transaction.
///   run() notices and throws.
///
/// The rows must stay: whoever deletes one deletes the memory of who was late. Thread safety:
/// immutable; executors are the program's own. Invariants in the database: as gate, for what was
/// committed.
class sql_gate {
 public:
  /// The largest token that a database keeps exactly.
  static constexpr std::uint64_t max_token = 0x7fff'ffff'ffff'ffff;

  /// A gate for `resource`: 1 to 255 bytes of UTF-8 without control characters, for `options.lock`
  /// only or the first that passes. Throws lock_error: bad_option when resource or table are not
  /// usable, bad_name when the lock has more than gate::max_lock_bytes bytes, is no UTF-8 or has
  /// control characters.
  sql_gate(sql::dialect whose, std::string resource, const sql_gate_options& options = {});

  /// The statements that make the table where it is missing. Run them once, outside of transactions.
  /// Throws lock_error (bad_option).
  [[nodiscard]] static std::vector<sql::statement> schema(
      sql::dialect whose, const std::string& table = sql_gate_options{}.table);

  /// One statement that judges `shown` and, if it passes, raises the number; it gives one row with
  /// one number, for verdict_of(). On MariaDB it needs 10.5 (INSERT ... RETURNING); on sqlite 3.35.
  ///
  /// Throws lock_error: no_fencing when the pass carries no token, bad_option when its token is above
  /// max_token, bad_name when its lock has not 1 to gate::max_lock_bytes bytes of UTF-8 without control
  /// characters.
  [[nodiscard]] sql::statement admit(const pass& shown) const;

  /// The same under the pass that `lease` shows.
  template <shows_pass Lease>
  [[nodiscard]] sql::statement admit(const Lease& lease) const {
    const pass shown = lease.fence_pass();
    return admit(shown);
  }

  /// One statement that binds the gate to another lock, as gate::rebind says; it gives one row with one
  /// number, for verdict_of(), or no row when nobody has passed the gate yet. Run it in a transaction
  /// of its own: it waits for those who are inside. Triggers share the row, and are bound with it.
  /// `options.lock` is not looked at. Throws lock_error as gate::rebind and admit().
  [[nodiscard]] sql::statement rebind(const std::string& from, const pass& shown,
                                      rebinding kind = rebinding::keeps_numbers) const;
  /// Does so through `database`; a gate that nobody has passed yet is bound to nobody: wrong_lock.
  verdict rebind(const sql::executor& database, const std::string& from, const pass& shown,
                 rebinding kind = rebinding::keeps_numbers) const;

  /// What the number means. Throws lock_error (store_refused) for one that no gate answers.
  static verdict verdict_of(std::int64_t number);
  /// The same for the whole answer to admit() or rebind().
  static verdict verdict_of(const sql::answer& answered);

  /// Begins a transaction through `database`, judges `shown` in it, runs `action` if it passes, and
  /// commits; `action` writes through the same connection. Rolls back when it does not pass, and when
  /// anything throws. A commit whose answer is lost is what the executor makes of it: `action` may
  /// have happened. REQUIRES: the connection is in no transaction.
  ///
  /// Throws whatever `action` and `database` throw, what admit() throws, and lock_error
  /// (store_refused) when the transaction was no longer whole at the end of `action`: it was committed or
  /// rolled back inside (DDL on MariaDB, an error that was swallowed on PostgreSQL). Then some of
  /// what `action` did may stand, and some of it may have run outside of the gate.
  template <guarded_action Action>
  verdict run(const sql::executor& database, const pass& shown, Action&& action) const {
    return run_inside(database, shown, std::function<void()>(std::ref(action)));
  }

  /// The same under the pass that `lease` shows.
  template <shows_pass Lease, guarded_action Action>
  verdict run(const sql::executor& database, const Lease& lease, Action&& action) const {
    return run_inside(database, lease.fence_pass(), std::function<void()>(std::ref(action)));
  }

 private:
  verdict run_inside(const sql::executor& database, const pass& shown,
                     const std::function<void()>& action) const;
  [[nodiscard]] sql::statement still_inside(const pass& shown) const;

  const sql::dialect dialect_;
  const std::string resource_;
  const std::string lock_;   // empty: not bound by this object
  const std::string table_;  // quoted
  const bool declares_pass_;
};

/// What became of a guarded update of one row.
enum class [[nodiscard]] row_verdict : std::uint8_t{
    written,      ///< the row has the new values, and this token
    stale,        ///< a newer grant wrote the row before; nothing was changed
    no_such_row,  ///< there is no row with that key; nothing was changed
};

[[nodiscard]] std::string_view to_string(row_verdict answer) noexcept;

/// A gate without a table of its own: each row carries the token of its last writer, and the update
/// compares it, in one statement. For exclusive locks only, and for rows that are updated: a deleted
/// row forgets its number. The column is a BIGINT (`fence BIGINT NOT NULL DEFAULT 0`; NULL counts as
/// zero), and all writers of a row use one lock: a row does not remember which.
///
///     const sql_row_gate accounts{sql::dialect::postgres, "accounts", "id"};
///     const row_verdict said = accounts.update(database, lease, 42, {{"balance", 150}});
///
/// Thread safety: immutable.
class sql_row_gate {
 public:
  /// A column and its new value.
  using assignment = std::pair<std::string, sql::value>;

  /// The rows of `table` (`name`, or `schema.name`), which `key` tells apart. Throws lock_error
  /// (bad_option) when a name is not usable.
  sql_row_gate(sql::dialect whose, const std::string& table, const std::string& key,
               const std::string& fence = "fence");

  /// `UPDATE table SET ..., fence = :token WHERE key = :row AND fence <= :token`. Rows changed: one
  /// means written; none means stale or no such row, which look_again() tells apart.
  ///
  /// Throws lock_error as sql_gate::admit does, and bad_option for a shared pass, no assignments, a
  /// column that is not usable, the key or fence among them, and the same column twice.
  [[nodiscard]] sql::statement update(const pass& shown, const sql::value& row,
                                      const std::vector<assignment>& set) const;
  /// The row's number, in one row with one number (or NULL); no row means that there is none. It reads
  /// the newest commit also inside of a transaction of MariaDB, and locks the row there.
  [[nodiscard]] sql::statement look_again(const sql::value& row) const;

  /// Does both through `database`. MariaDB counts rows that already had the new values only with
  /// CLIENT_FOUND_ROWS; this call needs no such setting. Throws what `database` throws.
  row_verdict update(const sql::executor& database, const pass& shown, const sql::value& row,
                     const std::vector<assignment>& set) const;

  /// The same under the pass that `lease` shows.
  template <shows_pass Lease>
  row_verdict update(const sql::executor& database, const Lease& lease, const sql::value& row,
                     const std::vector<assignment>& set) const {
    const pass shown = lease.fence_pass();
    return update(database, shown, row, set);
  }

 private:
  const sql::dialect dialect_;
  const std::string table_;  // all quoted
  const std::string key_;
  const std::string fence_;
};

/// A table that guards itself.
struct sql_trigger_options {
  /// The guarded table: `name`, or `schema.name`. InnoDB, on MariaDB.
  std::string table{};
  /// Every row is a resource of its own, named by this column. Empty: the table is one resource.
  std::string resource_column{};
  /// The table's resource, or what stands before the column's value. Empty: the table's name without
  /// its schema; with a column, that and a slash ("accounts/").
  std::string resource{};
  /// The table that keeps the numbers, as in sql_gate_options.
  std::string gate_table = sql_gate_options{}.table;
};

/// The SQLSTATE with which a guarded table refuses a write. The message names cause and remedy.
namespace sql_state {
inline constexpr std::string_view no_pass = "SP001";     ///< none was declared in this transaction
inline constexpr std::string_view stale = "SP002";       ///< a newer grant was here before
inline constexpr std::string_view wrong_lock = "SP003";  ///< the numbers belong to another lock
inline constexpr std::string_view bad_pass = "SP004";    ///< it can't be judged: pass or resource
}  // namespace sql_state

/// The statements that make a table refuse INSERT, UPDATE and DELETE (on PostgreSQL also TRUNCATE)
/// from whoever declared no pass, or a late one, in its transaction; also from programs that know
/// nothing of gates. The triggers judge, lock and raise the same row as a sql_gate for the same
/// resource. Repeat them after an upgrade: they replace what is there.
///
/// Throws lock_error: bad_option when a name is not usable or too long for the triggers' names,
/// not_supported for sqlite, whose triggers can't see who writes.
[[nodiscard]] std::vector<sql::statement> sql_trigger_ddl(sql::dialect whose,
                                                          const sql_trigger_options& options);
/// The statements that take the triggers away again.
[[nodiscard]] std::vector<sql::statement> sql_trigger_removal(sql::dialect whose,
                                                              const sql_trigger_options& options);

/// Statements without parameters as a script for psql, or for mariadb (with DELIMITER).
[[nodiscard]] std::string sql_script(sql::dialect whose, const std::vector<sql::statement>& all);

/// A statement with its parameters written into it, for a console. REQUIRES: as many parameters as
/// placeholders, texts of UTF-8 without control characters, and no `?` or `$` outside of quotes but placeholders.
[[nodiscard]] std::string sql_text(sql::dialect whose, const sql::statement& one);

/// Declares under which pass the transaction writes from here on; a later one replaces it, so that one
/// transaction may write under several locks, one after the other. On PostgreSQL it ends with the
/// transaction. On MariaDB it is a variable of the session and outlives it: send withdraw_pass() before
/// the connection goes back to a pool, or let the pool reset it (COM_RESET_CONNECTION). A pass
/// that was left behind is still judged by its number and never gets past a newer holder, but lets a
/// writer through that declared nothing. Throws lock_error as sql_gate::admit, and not_supported for sqlite.
[[nodiscard]] sql::statement declare_pass(sql::dialect whose, const pass& shown);

/// The same under the pass that `lease` shows.
template <shows_pass Lease>
[[nodiscard]] sql::statement declare_pass(sql::dialect whose, const Lease& lease) {
  const pass shown = lease.fence_pass();
  return declare_pass(whose, shown);
}

/// Takes the declaration back.
[[nodiscard]] sql::statement withdraw_pass(sql::dialect whose);

}  // namespace sallyport::fence
