#pragma once

#include "tests/kit/waiting.hpp"
#include <sallyport/sql.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <libpq-fe.h>
#include <mysql.h>
#include <sqlite3.h>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

/// Carries out sql::statement on real connections, as a program does with whatever client it has: one
/// small class for libpq, libmariadb and sqlite3 each. Header only: who includes it links
/// `sallyport_sql_executors`, which has the three libraries.
namespace sallyport::kit {

/// What a database refused. `state` is the SQLSTATE; of sqlite, the name of its code.
class sql_error : public kit_error {
 public:
  sql_error(std::string_view state, const std::string& why)
      : kit_error(why + " (" + std::string(state) + ")") {
    state.copy(state_.data(), state_.size() - 1);
  }
  [[nodiscard]] std::string state() const { return state_.data(); }

 private:
  std::array<char, 24> state_{};  // an exception is copied without a failure of its own
};

/// The value as a number; throws kit_error when it is none.
[[nodiscard]] inline std::int64_t number_of(const sql::value& one) {
  if (const auto* const number = std::get_if<std::int64_t>(&one)) return *number;
  throw kit_error(
      "the database gave no number: " +
      std::string(std::get_if<std::string>(&one) == nullptr ? "NULL" : std::get<std::string>(one)));
}

/// The first column of the first row, as a number; throws kit_error when there is none.
[[nodiscard]] inline std::int64_t first_number(const sql::answer& given) {
  if (given.rows.empty() || given.rows.front().empty()) throw kit_error("the database gave no row");
  return number_of(given.rows.front().front());
}

/// PostgreSQL through libpq. Numbers are bound as bigint, texts as the bytes that they are (binary
/// format, so that they fit text and bytea).
/// Thread safety: none.
class postgres_executor {
 public:
  /// A connection string of libpq.
  explicit postgres_executor(const std::string& where) : connection_(PQconnectdb(where.c_str())) {
    // "already exists, skipping" is no news to a test.
    PQsetNoticeProcessor(
        connection_, [](void*, const char*) {}, nullptr);
    if (PQstatus(connection_) == CONNECTION_OK) return;
    const std::string why = PQerrorMessage(connection_);
    PQfinish(connection_);
    throw kit_error("no connection: " + why);
  }
  postgres_executor(const postgres_executor&) = delete;
  postgres_executor& operator=(const postgres_executor&) = delete;
  ~postgres_executor() { PQfinish(connection_); }

  sql::answer operator()(const sql::statement& one) {
    bound all = bind(one.parameters);
    return read(PQexecParams(connection_, one.text.c_str(), static_cast<int>(all.types.size()),
                             all.types.data(), all.values.data(), all.lengths.data(),
                             all.formats.data(), 0));
  }
  /// Several statements without parameters.
  sql::answer run(const std::string& text) { return read(PQexec(connection_, text.c_str())); }
  /// Sends without waiting; result() waits for what it gives.
  void begin(const sql::statement& one) {
    bound all = bind(one.parameters);
    if (PQsendQueryParams(connection_, one.text.c_str(), static_cast<int>(all.types.size()),
                          all.types.data(), all.values.data(), all.lengths.data(),
                          all.formats.data(), 0) != 1) {
      throw kit_error(PQerrorMessage(connection_));
    }
  }
  sql::answer result() {
    PGresult* const first = PQgetResult(connection_);
    while (PGresult* const next = PQgetResult(connection_)) PQclear(next);
    return read(first);
  }
  [[nodiscard]] sql::executor executor() {
    return [this](const sql::statement& one) { return (*this)(one); };
  }
  [[nodiscard]] static constexpr sql::dialect dialect() { return sql::dialect::postgres; }
  /// The server's process that serves this connection.
  [[nodiscard]] int process() const { return PQbackendPID(connection_); }

 private:
  static constexpr Oid boolean = 16;
  static constexpr Oid bytes = 17;
  static constexpr Oid bigint = 20;
  static constexpr Oid smallint = 21;
  static constexpr Oid integer = 23;

  struct bound {
    std::vector<std::string> texts;
    std::vector<Oid> types;
    std::vector<const char*> values;
    std::vector<int> lengths;
    std::vector<int> formats;
  };

  static bound bind(const std::vector<sql::value>& parameters) {
    bound all;
    all.texts.reserve(parameters.size());
    for (const sql::value& each : parameters) {
      const auto* const number = std::get_if<std::int64_t>(&each);
      const auto* const text = std::get_if<std::string>(&each);
      const bool null = number == nullptr && text == nullptr;
      const std::string& kept = all.texts.emplace_back(number != nullptr ? std::to_string(*number)
                                                       : null            ? ""
                                                                         : *text);
      all.types.push_back(number != nullptr ? bigint : 0);
      all.values.push_back(null ? nullptr : kept.data());
      all.lengths.push_back(static_cast<int>(kept.size()));
      all.formats.push_back(text != nullptr ? 1 : 0);
    }
    return all;
  }

  static sql::value value_at(PGresult* given, int row, int column) {
    if (PQgetisnull(given, row, column) == 1) return std::monostate{};
    const char* const text = PQgetvalue(given, row, column);
    const auto length = static_cast<std::size_t>(PQgetlength(given, row, column));
    switch (PQftype(given, column)) {
      case bigint:
      case integer:
      case smallint:
        return std::int64_t{std::strtoll(text, nullptr, 10)};
      case boolean:
        return std::int64_t{text[0] == 't'};
      case bytes: {
        std::size_t size = 0;
        unsigned char* const plain =
            PQunescapeBytea(reinterpret_cast<const unsigned char*>(text), &size);
        std::string out(reinterpret_cast<const char*>(plain), size);
        PQfreemem(plain);
        return out;
      }
      default:
        return std::string(text, length);
    }
  }

  static sql::answer read(PGresult* given) {
    const auto status = PQresultStatus(given);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
      const char* const told = PQresultErrorField(given, PG_DIAG_SQLSTATE);
      const std::string state = told == nullptr ? "08006" : told;
      const std::string why = PQresultErrorMessage(given);
      PQclear(given);
      throw sql_error(state, why);
    }
    sql::answer out;
    for (int row = 0; row < PQntuples(given); ++row) {
      auto& values = out.rows.emplace_back();
      for (int column = 0; column < PQnfields(given); ++column) {
        values.push_back(value_at(given, row, column));
      }
    }
    // libpq counts the rows of a SELECT, too.
    if (!std::string_view(PQcmdStatus(given)).starts_with("SELECT")) {
      out.changed = std::strtoull(PQcmdTuples(given), nullptr, 10);
    }
    PQclear(given);
    return out;
  }

  PGconn* connection_;
};

struct mariadb_executor_options {
  std::uint16_t port = 0;
  std::string database = "test";
  std::string user = "root";
  /// Count the rows that were matched, as sql::answer wants it. Off: what most clients do by default.
  bool found_rows = true;
};

/// MariaDB through libmariadb, with prepared statements: numbers travel as 64-bit numbers.
/// Thread safety: none.
class mariadb_executor {
 public:
  explicit mariadb_executor(const mariadb_executor_options& where)
      : connection_(mysql_init(nullptr)) {
    constexpr unsigned patience_s = 10;
    mysql_options(connection_, MYSQL_OPT_CONNECT_TIMEOUT, &patience_s);
    mysql_options(connection_, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    if (mysql_real_connect(connection_, "127.0.0.1", where.user.c_str(), "", where.database.c_str(),
                           where.port, nullptr,
                           where.found_rows ? CLIENT_FOUND_ROWS : 0) != nullptr) {
      return;
    }
    const std::string why = mysql_error(connection_);
    mysql_close(connection_);
    throw kit_error("no connection: " + why);
  }
  mariadb_executor(const mariadb_executor&) = delete;
  mariadb_executor& operator=(const mariadb_executor&) = delete;
  ~mariadb_executor() { mysql_close(connection_); }

  sql::answer operator()(const sql::statement& one) {
    const prepared made{connection_};
    check(mysql_stmt_prepare(made.get(), one.text.data(), one.text.size()) == 0, made.get());
    bind_and_execute(made.get(), one.parameters);
    return read(made.get());
  }
  /// One statement without parameters.
  sql::answer run(const std::string& text) { return (*this)({.text = text, .parameters = {}}); }
  [[nodiscard]] sql::executor executor() {
    return [this](const sql::statement& one) { return (*this)(one); };
  }
  [[nodiscard]] static constexpr sql::dialect dialect() { return sql::dialect::mariadb; }
  /// The server's number of this connection, for KILL.
  [[nodiscard]] std::uint64_t connection() const { return mysql_thread_id(connection_); }
  /// What a pool does before it hands a connection on: session variables and the transaction are gone.
  void reset() {
    if (mysql_reset_connection(connection_) != 0) {
      throw sql_error(mysql_sqlstate(connection_), mysql_error(connection_));
    }
  }

 private:
  class prepared {
   public:
    explicit prepared(MYSQL* connection) : made_(mysql_stmt_init(connection)) {}
    prepared(const prepared&) = delete;
    prepared& operator=(const prepared&) = delete;
    ~prepared() { mysql_stmt_close(made_); }
    [[nodiscard]] MYSQL_STMT* get() const { return made_; }

   private:
    MYSQL_STMT* made_;
  };

  static void check(bool done, MYSQL_STMT* statement) {
    if (!done) throw sql_error(mysql_stmt_sqlstate(statement), mysql_stmt_error(statement));
  }

  static void bind_and_execute(MYSQL_STMT* statement, const std::vector<sql::value>& parameters) {
    std::vector<MYSQL_BIND> binds(parameters.size());
    std::vector<std::int64_t> numbers(parameters.size());
    if (mysql_stmt_param_count(statement) != parameters.size()) {
      throw kit_error("the statement has another number of placeholders than parameters");
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (const auto* const number = std::get_if<std::int64_t>(&parameters[i])) {
        numbers[i] = *number;
        binds[i].buffer_type = MYSQL_TYPE_LONGLONG;
        binds[i].buffer = &numbers[i];
      } else if (const auto* const text = std::get_if<std::string>(&parameters[i])) {
        binds[i].buffer_type = MYSQL_TYPE_STRING;
        binds[i].buffer = const_cast<char*>(text->data());
        binds[i].buffer_length = text->size();
      } else {
        binds[i].buffer_type = MYSQL_TYPE_NULL;
      }
    }
    check(binds.empty() || mysql_stmt_bind_param(statement, binds.data()) == 0, statement);
    const my_bool lengths_too = 1;
    mysql_stmt_attr_set(statement, STMT_ATTR_UPDATE_MAX_LENGTH, &lengths_too);
    check(mysql_stmt_execute(statement) == 0, statement);
  }

  struct cell {
    std::int64_t number = 0;
    std::string text;
    unsigned long length = 0;
    my_bool null = 0;
    bool whole = false;
    bool without_sign = false;
  };

  static sql::value value_in(const cell& one) {
    if (one.null != 0) return std::monostate{};
    if (!one.whole) return one.text.substr(0, one.length);
    if (one.without_sign && one.number < 0) {
      throw kit_error("a number above 2^63-1 does not fit sql::value");
    }
    return one.number;
  }

  static bool is_whole(enum_field_types type) {
    switch (type) {
      case MYSQL_TYPE_TINY:
      case MYSQL_TYPE_SHORT:
      case MYSQL_TYPE_LONG:
      case MYSQL_TYPE_INT24:
      case MYSQL_TYPE_LONGLONG:
        return true;
      default:
        return false;
    }
  }

  static sql::answer read(MYSQL_STMT* statement) {
    sql::answer out;
    MYSQL_RES* const columns = mysql_stmt_result_metadata(statement);
    if (columns == nullptr) {
      out.changed = mysql_stmt_affected_rows(statement);
      return out;
    }
    const int stored = mysql_stmt_store_result(statement);
    std::vector<cell> cells(mysql_num_fields(columns));
    std::vector<MYSQL_BIND> binds(cells.size());
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const MYSQL_FIELD& field = mysql_fetch_fields(columns)[i];
      cells[i].whole = is_whole(field.type);
      cells[i].without_sign = (field.flags & UNSIGNED_FLAG) != 0;
      binds[i].is_null = &cells[i].null;
      binds[i].length = &cells[i].length;
      if (cells[i].whole) {
        binds[i].buffer_type = MYSQL_TYPE_LONGLONG;
        binds[i].buffer = &cells[i].number;
        binds[i].is_unsigned = cells[i].without_sign ? 1 : 0;
      } else {
        cells[i].text.resize(field.max_length);
        binds[i].buffer_type = MYSQL_TYPE_STRING;
        binds[i].buffer = cells[i].text.data();
        binds[i].buffer_length = field.max_length;
      }
    }
    mysql_free_result(columns);
    check(stored == 0 && mysql_stmt_bind_result(statement, binds.data()) == 0, statement);
    for (int more = 0; (more = mysql_stmt_fetch(statement)) != MYSQL_NO_DATA;) {
      check(more == 0, statement);
      auto& values = out.rows.emplace_back();
      for (const cell& each : cells) values.push_back(value_in(each));
    }
    // RETURNING: every row that it gives was written. A SELECT writes none.
    return out;
  }

  MYSQL* connection_;
};

/// sqlite3, on a file of its own or ":memory:". Waits for other writers as long as `patience`.
/// Thread safety: none.
class sqlite_executor {
 public:
  explicit sqlite_executor(const std::string& path) {
    if (sqlite3_open(path.c_str(), &connection_) != SQLITE_OK) {
      const std::string why = sqlite3_errmsg(connection_);
      sqlite3_close(connection_);
      throw kit_error("no database: " + why);
    }
    sqlite3_busy_timeout(
        connection_,
        static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(patience).count()));
  }
  sqlite_executor(const sqlite_executor&) = delete;
  sqlite_executor& operator=(const sqlite_executor&) = delete;
  ~sqlite_executor() { sqlite3_close(connection_); }

  sql::answer operator()(const sql::statement& one) {
    sqlite3_stmt* made = nullptr;
    check(sqlite3_prepare_v2(connection_, one.text.data(), static_cast<int>(one.text.size()), &made,
                             nullptr) == SQLITE_OK);
    const prepared owned{made};
    for (std::size_t i = 0; i < one.parameters.size(); ++i) {
      const int at = static_cast<int>(i) + 1;
      if (const auto* const number = std::get_if<std::int64_t>(&one.parameters[i])) {
        check(sqlite3_bind_int64(made, at, *number) == SQLITE_OK);
      } else if (const auto* const text = std::get_if<std::string>(&one.parameters[i])) {
        check(sqlite3_bind_text64(made, at, text->data(), text->size(), SQLITE_STATIC,
                                  SQLITE_UTF8) == SQLITE_OK);
      }
    }
    sql::answer out;
    for (int step = 0; (step = sqlite3_step(made)) != SQLITE_DONE;) {
      check(step == SQLITE_ROW);
      auto& values = out.rows.emplace_back();
      for (int column = 0; column < sqlite3_column_count(made); ++column) {
        values.push_back(value_at(made, column));
      }
    }
    // sqlite3_changes() keeps the number of the last statement that wrote.
    if (sqlite3_stmt_readonly(made) == 0) {
      out.changed = static_cast<std::uint64_t>(sqlite3_changes64(connection_));
    }
    return out;
  }
  /// One statement without parameters.
  sql::answer run(const std::string& text) { return (*this)({.text = text, .parameters = {}}); }
  [[nodiscard]] sql::executor executor() {
    return [this](const sql::statement& one) { return (*this)(one); };
  }
  [[nodiscard]] static constexpr sql::dialect dialect() { return sql::dialect::sqlite; }

 private:
  class prepared {
   public:
    explicit prepared(sqlite3_stmt* made) : made_(made) {}
    prepared(const prepared&) = delete;
    prepared& operator=(const prepared&) = delete;
    ~prepared() { sqlite3_finalize(made_); }

   private:
    sqlite3_stmt* made_;
  };

  void check(bool done) const {
    if (!done) {
      throw sql_error("sqlite " + std::to_string(sqlite3_extended_errcode(connection_)),
                      sqlite3_errmsg(connection_));
    }
  }

  static sql::value value_at(sqlite3_stmt* made, int column) {
    switch (sqlite3_column_type(made, column)) {
      case SQLITE_NULL:
        return std::monostate{};
      case SQLITE_INTEGER:
        return std::int64_t{sqlite3_column_int64(made, column)};
      default: {
        const auto size = static_cast<std::size_t>(sqlite3_column_bytes(made, column));
        const void* const data = sqlite3_column_blob(made, column);
        return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), size);
      }
    }
  }

  sqlite3* connection_ = nullptr;
};

}  // namespace sallyport::kit
