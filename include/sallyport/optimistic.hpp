#pragma once

#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>
#include <sallyport/sql.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::sql {

/// For an executor to throw: the database refused the statement, or rolled back its transaction,
/// because of others who work at the same time, and has changed nothing. Serialization failures and
/// deadlocks (SQLSTATE 40001 and 40P01, MariaDB's errors 1205, 1213 and 1020) and SQLITE_BUSY are this.
class conflict : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// For an executor to throw: the connection broke, so nobody knows whether the statement was carried
/// out. The next statement has to go over a new connection.
class connection_lost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace sallyport::sql

/// No lock at all: a row with a version. Whoever changes it reads values and version, computes, and
/// writes only if the version is still the one that was read; otherwise somebody else was faster, and
/// it starts over. Nobody ever waits for a holder that died, and there is nothing to fence: a writer
/// that stood still for an hour is refused by the version. Right where conflicts are rare; docs/choosing.md
/// says when something else is better.
namespace sallyport::optimistic {

/// One value for each of layout::values, in that order.
using values = std::vector<sql::value>;

/// The names of a table and of the columns that take part. All are quoted, so they are case-sensitive
/// where the database's quoted names are.
struct layout {
  std::string schema{};  ///< empty: the one that the connection uses
  std::string table{};
  std::string key{};                  ///< unique: a primary key or a unique index
  std::vector<std::string> values{};  ///< what is read and written; 1 to table::max_values
  std::string version = "version";    ///< a 64-bit whole number, NOT NULL
  /// Remembers who wrote last, so that it can be found out whether a write happened whose answer never
  /// came: text of table::writers_bytes ASCII characters at least. Empty: there is no such column.
  std::string writers{};
};

/// Makes the statements for rows with a version. It sends nothing.
///
///     const optimistic::table stock{sql::dialect::postgres,
///         {.table = "stock", .key = "item", .values = {"pieces"}, .writers = "writers"}};
///
/// Everybody who changes a row has to add one to its version, with this class or by hand. A row that is
/// deleted and made again has to come back with a version that it never had, or a late writer takes it
/// for the old one; options::create sees to that.
///
/// Thread safety: immutable.
class table {
 public:
  static constexpr std::size_t max_values = 100;
  /// A write's id: 128 random bits in hexadecimal digits.
  static constexpr std::size_t writer_bytes = 32;
  /// How many writes a row remembers in its column `writers`.
  static constexpr std::size_t writers_kept = 8;
  static constexpr std::size_t writers_bytes = writer_bytes * writers_kept;

  /// Throws lock_error (bad_option) when a name can't be one (see sql::quoted), is missing or stands
  /// there twice, or when there are no values or too many.
  table(sql::dialect whose, const layout& names);

  /// Gives one row: the values, the version, and the writers if there is such a column.
  [[nodiscard]] sql::statement read(const sql::value& key) const;
  /// Writes if the row still has that version; a version higher by one then. Changes one row, or none.
  /// `writer` has writer_bytes characters. Throws lock_error (bad_option) when the number of values is
  /// not the table's.
  [[nodiscard]] sql::statement write(const sql::value& key, std::int64_t version, const values& to,
                                     std::string_view writer) const;
  /// Adds the row, with that version, if there is none with this key. Throws as write().
  [[nodiscard]] sql::statement create(const sql::value& key, std::int64_t version,
                                      const values& first) const;
  /// Changes nothing but the version, from this one to the next: what was to be written at this
  /// version can't be written any more. Changes one row, or none.
  [[nodiscard]] sql::statement seal(const sql::value& key, std::int64_t version) const;

  [[nodiscard]] sql::dialect dialect() const noexcept { return whose_; }
  [[nodiscard]] std::size_t number_of_values() const noexcept { return values_.size(); }
  [[nodiscard]] bool remembers_writers() const noexcept { return !writers_.empty(); }

 private:
  void check_values(const values& given) const;

  sql::dialect whose_;
  std::string table_;  // this and the following: quoted
  std::string key_;
  std::vector<std::string> values_;
  std::string version_;
  std::string writers_;
};

/// What is to be written.
struct change {
  optimistic::values values{};
  /// Further statements that have to happen if and only if the row is written: they run after it, in one
  /// transaction with it. None that commits by itself, as DDL does on MariaDB.
  std::vector<sql::statement> also{};
};

/// Computes the new values from those that were read; nullopt: there is nothing to write. It is called
/// again after every conflict, so it must have no effect but its result.
using decision = std::function<std::optional<change>(const values& read)>;

/// How long to try. Use designated initialisers; update() validates.
struct options {
  /// No attempt begins later than this after the call; one is made at least, unless stopped. A
  /// statement that hangs is not cut off: set your client's own time limits. Between 0 and 24 h.
  lease_clock::duration time_limit = std::chrono::seconds{10};
  std::uint32_t most_attempts = 10'000;
  /// The pause after a conflict is drawn evenly between nothing and this, which doubles with every
  /// further conflict ...
  lease_clock::duration first_pause = std::chrono::milliseconds{1};
  /// ... up to this. Between first_pause and a minute.
  lease_clock::duration longest_pause = std::chrono::milliseconds{50};
  /// Ends the attempts, and a pause between them at once.
  std::stop_token stop{};
  /// If the row is missing, it is made with these values before it is read.
  std::optional<values> create{};
};

/// What became of an update. Losing against others for too long is a value, never an exception.
struct [[nodiscard]] outcome {
  enum class kind : std::uint8_t {
    written,      ///< by this call, exactly once
    unchanged,    ///< the decision was not to write, on the values that are told here
    no_such_row,  ///< there is no row with this key
    gave_up,      ///< nothing was written: time_limit, most_attempts, or stopped
  };
  kind is = kind::gave_up;
  std::int64_t version = 0;     ///< written: the new one; unchanged: the one that was read
  optimistic::values values{};  ///< of the row at that version
  std::uint32_t attempts = 0;
  /// Attempts that failed because somebody else was faster.
  std::uint32_t conflicts = 0;

  /// Whether it was written.
  explicit operator bool() const noexcept { return is == kind::written; }
};

[[nodiscard]] std::string_view to_string(outcome::kind is) noexcept;

/// A write that was sent, and of which nobody knows whether it happened.
struct pending_write {
  sql::value key{};
  std::int64_t version = 0;  ///< it is written at this version, or never
  std::string writer{};
};

/// Thrown by update(), with the code outcome_unknown, when the connection broke around a write, and it
/// could not be found out in time whether it happened. settle() finds out later.
class unsettled : public lock_error {
 public:
  unsettled(pending_write write, const std::string& why);

  [[nodiscard]] const pending_write& write() const noexcept { return write_; }

 private:
  pending_write write_;
};

/// Reads the row, asks `decide`, and writes if the row has not changed meanwhile; if it has, again, after
/// a pause, until it is written or the options say that it is enough. Two statements when nobody is in
/// the way and nothing else is written with the row.
///
/// The executor must not have a transaction open: what a transaction has read it may go on seeing,
/// however often it reads again (MariaDB, PostgreSQL above READ COMMITTED). A change with further
/// statements needs an executor whose calls go over one connection: update() sends BEGIN and COMMIT
/// around them, and ROLLBACK when one of them fails.
///
/// What `execute` and `decide` throw comes out as it is, but for two types. After sql::conflict it tries
/// again. After sql::connection_lost it tries again as well, and finds out first what became of a write
/// that was on its way: the same write at the same version is sent again, which happens once at most, or
/// the column `writers` tells whose writes came after that version. Only when neither can tell (the row
/// was written more than table::writers_kept times meanwhile, or at all where there is no such column; it
/// was deleted; the database stays away) it throws `unsettled`. When it stays away and nothing was on its
/// way, the last connection_lost comes out: a broken database is never told as gave_up.
///
/// Throws lock_error also for options out of range and a key that is NULL (bad_option), and when the
/// answer has no such row's shape (store_refused): several rows for a key, a version that is no number.
///
/// Thread safety: as that of `execute`; calls share nothing else.
outcome update(const sql::executor& execute, const table& rows, const sql::value& key,
               const decision& decide, const options& how = {});

/// What became of a write.
enum class [[nodiscard]] settlement : std::uint8_t{
    written,
    not_written,  ///< and it never will be
    unknown,      ///< the row has changed too often since, or is gone
};

[[nodiscard]] std::string_view to_string(settlement is) noexcept;

/// Finds out what became of a write, also in another process than the one that sent it. A write that
/// has not happened may still be under way: to make sure that it never does, the row's version is raised.
/// Tries as long as the options say, then throws the executor's last sql::conflict or
/// sql::connection_lost. Otherwise throws as update().
settlement settle(const sql::executor& execute, const table& rows, const pending_write& write,
                  const options& how = {});

}  // namespace sallyport::optimistic
