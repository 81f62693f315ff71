#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// Statements with parameters, for whatever client of a database the program already has. Gates and
/// optimistic rows for databases open no connection: they say what to send, and the program's own
/// connection, pool and transaction carry it out.
namespace sallyport::sql {

/// Whose SQL. It decides about placeholders ($1, $2 ... in PostgreSQL, ? in the others), quotes and
/// the few words that differ.
enum class dialect : std::uint8_t { postgres, mariadb, sqlite };

/// NULL, a whole number, or text or bytes. Bind a number as a 64-bit number, not as text: MariaDB
/// compares a text with a BIGINT as floating-point numbers, and tokens would no longer be exact.
using value = std::variant<std::monostate, std::int64_t, std::string>;

/// One statement. Everything that comes from outside is a parameter; the text holds only names of
/// tables and columns, checked and quoted.
struct statement {
  std::string text{};
  std::vector<value> parameters{};

  friend bool operator==(const statement&, const statement&) = default;
};

/// What a statement gave.
struct answer {
  std::vector<std::vector<value>> rows{};  ///< of a SELECT, or of RETURNING
  /// Rows that were matched and written. For MariaDB, connect with CLIENT_FOUND_ROWS: otherwise it
  /// leaves out rows that already had the new values.
  std::uint64_t changed = 0;
};

/// Carries out one statement on the program's connection. What it throws comes out of the call that
/// used it.
using executor = std::function<answer(const statement&)>;

/// The most bytes that a table's or column's name may have: PostgreSQL cuts longer ones off silently.
inline constexpr std::size_t max_identifier_bytes = 63;

/// `name` as an identifier of that dialect, in its quotes. Throws lock_error (bad_option) when it is
/// empty, too long, no UTF-8, or has a control character.
[[nodiscard]] std::string quoted(dialect whose, std::string_view name);

/// The placeholder of the parameter number `index`, counted from 1.
[[nodiscard]] std::string placeholder(dialect whose, std::size_t index);

}  // namespace sallyport::sql
