#pragma once

#include <sallyport/sql.hpp>

#include <memory>
#include <string>

/// One connection to a database, over that database's own client library. This is all that a program
/// needs for sallyport's rows with a version: carry out a statement, and say what kind of failure it was.
/// Thread safety: none.
class database {
 public:
  virtual ~database() = default;
  database() = default;
  database(const database&) = delete;
  database& operator=(const database&) = delete;

  [[nodiscard]] virtual sallyport::sql::dialect dialect() const = 0;

  /// Throws sallyport::sql::conflict and sallyport::sql::connection_lost as their headers say, and
  /// std::runtime_error for all else. After connection_lost, connects again.
  virtual sallyport::sql::answer execute(const sallyport::sql::statement& one) = 0;

  sallyport::sql::answer execute(std::string text) {
    return execute(sallyport::sql::statement{.text = std::move(text), .parameters = {}});
  }
  [[nodiscard]] sallyport::sql::executor executor() {
    return [this](const sallyport::sql::statement& one) { return execute(one); };
  }
};

/// "sqlite:PATH", "postgres://..." (as libpq reads it) or
/// "mariadb://user[:password]@host[:port]/database". Throws std::runtime_error when nobody is there.
[[nodiscard]] std::unique_ptr<database> connect(const std::string& address);

// One file each.
[[nodiscard]] std::unique_ptr<database> connect_to_sqlite(const std::string& path);
[[nodiscard]] std::unique_ptr<database> connect_to_postgres(const std::string& address);
[[nodiscard]] std::unique_ptr<database> connect_to_mariadb(const std::string& address);
