#include "fence/row_state.hpp"

#include <sallyport/error.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::optimistic {

namespace {

[[noreturn]] void refuse(const char* why) {
  throw lock_error(errc::store_refused, std::string("optimistic rows: ") + why);
}

}  // namespace

std::optional<row_state> row_in(const table& rows, sql::answer given) {
  if (given.rows.empty()) return std::nullopt;
  if (given.rows.size() > 1) refuse("several rows have this key; it needs a unique index");
  std::vector<sql::value>& cells = given.rows.front();
  const std::size_t wanted = rows.number_of_values();
  if (cells.size() != wanted + (rows.remembers_writers() ? 2 : 1)) {
    refuse("the answer has another number of columns than the question");
  }
  row_state out;
  const auto* const version = std::get_if<std::int64_t>(&cells[wanted]);
  if (version == nullptr) {
    refuse("the version is NULL or no number; executors give whole numbers as std::int64_t");
  }
  out.version = *version;
  if (rows.remembers_writers()) {
    if (auto* const text = std::get_if<std::string>(&cells.back())) {
      out.writers = std::move(*text);
    } else if (!std::holds_alternative<std::monostate>(cells.back())) {
      refuse("the column of writers holds a number");
    }
  }
  cells.resize(wanted);
  out.values = std::move(cells);
  return out;
}

fate fate_of(const pending_write& write, const row_state& row) {
  const std::string_view list = row.writers;
  for (std::size_t at = 0; at + table::writer_bytes <= list.size(); at += table::writer_bytes) {
    if (list.substr(at, table::writer_bytes) == write.writer) return fate::written;
  }
  if (row.version == write.version) return fate::open;
  // A column that is too narrow keeps fewer than it should.
  const std::size_t known = std::min(list.size() / table::writer_bytes, table::writers_kept);
  // Both are the database's numbers: far apart they may be, but not overflow.
  const std::uint64_t since =
      static_cast<std::uint64_t>(row.version) - static_cast<std::uint64_t>(write.version);
  return row.version > write.version && since <= known ? fate::dead : fate::unknown;
}

}  // namespace sallyport::optimistic
