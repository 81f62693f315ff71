#include "database.hpp"
#include <sallyport/optimistic.hpp>
#include <sallyport/sql.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <sqlite3.h>
#include <stdexcept>
#include <string>
#include <variant>

namespace {

namespace sql = sallyport::sql;

class sqlite_database final : public database {
 public:
  explicit sqlite_database(const std::string& path) {
    sqlite3* opened = nullptr;
    const int code = sqlite3_open(path.c_str(), &opened);
    connection_.reset(opened);
    if (code != SQLITE_OK) throw std::runtime_error(path + ": " + sqlite3_errstr(code));
    // Wait for other processes' transactions, which are short, before it counts as a conflict.
    constexpr int patience_ms = 60'000;
    sqlite3_busy_timeout(opened, patience_ms);
    database::execute("PRAGMA journal_mode = WAL");
    // A power cut may take the last sales along, stock and record together. A real shop leaves this out.
    database::execute("PRAGMA synchronous = NORMAL");
  }

  [[nodiscard]] sql::dialect dialect() const override { return sql::dialect::sqlite; }

  sql::answer execute(const sql::statement& one) override {
    sqlite3_stmt* raw = nullptr;
    check(sqlite3_prepare_v2(connection_.get(), one.text.data(), static_cast<int>(one.text.size()),
                             &raw, nullptr));
    const std::unique_ptr<sqlite3_stmt, decltype(&sqlite3_finalize)> made{raw, sqlite3_finalize};
    for (std::size_t i = 0; i < one.parameters.size(); ++i) {
      check(bind(raw, static_cast<int>(i) + 1, one.parameters[i]));
    }
    sql::answer out;
    int step = 0;
    while ((step = sqlite3_step(raw)) == SQLITE_ROW) {
      auto& row = out.rows.emplace_back();
      for (int column = 0; column < sqlite3_column_count(raw); ++column) {
        row.push_back(value_at(raw, column));
      }
    }
    if (step != SQLITE_DONE) check(step);
    if (sqlite3_stmt_readonly(raw) == 0) {
      out.changed = static_cast<std::uint64_t>(sqlite3_changes64(connection_.get()));
    }
    return out;
  }

 private:
  static int bind(sqlite3_stmt* made, int at, const sql::value& what) {
    if (const auto* const number = std::get_if<std::int64_t>(&what)) {
      return sqlite3_bind_int64(made, at, *number);
    }
    if (const auto* const text = std::get_if<std::string>(&what)) {
      return sqlite3_bind_text64(made, at, text->data(), text->size(), SQLITE_STATIC, SQLITE_UTF8);
    }
    return sqlite3_bind_null(made, at);
  }

  static sql::value value_at(sqlite3_stmt* made, int column) {
    switch (sqlite3_column_type(made, column)) {
      case SQLITE_NULL:
        return std::monostate{};
      case SQLITE_INTEGER:
        return std::int64_t{sqlite3_column_int64(made, column)};
      default: {
        const void* const data = sqlite3_column_blob(made, column);
        const auto size = static_cast<std::size_t>(sqlite3_column_bytes(made, column));
        return size == 0 ? std::string() : std::string(static_cast<const char*>(data), size);
      }
    }
  }

  void check(int code) const {
    if (code == SQLITE_OK) return;
    const std::string why = std::string("sqlite: ") + sqlite3_errmsg(connection_.get());
    const int kind = code & 0xff;  // the rest says more about it
    if (kind == SQLITE_BUSY || kind == SQLITE_LOCKED) throw sql::conflict(why);
    throw std::runtime_error(why);
  }

  std::unique_ptr<sqlite3, decltype(&sqlite3_close)> connection_{nullptr, sqlite3_close};
};

}  // namespace

std::unique_ptr<database> connect_to_sqlite(const std::string& path) {
  return std::make_unique<sqlite_database>(path);
}
