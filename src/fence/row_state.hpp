#pragma once

#include <sallyport/optimistic.hpp>
#include <sallyport/sql.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace sallyport::optimistic {

/// A row as it was read.
struct row_state {
  optimistic::values values{};
  std::int64_t version = 0;
  std::string writers{};  ///< the newest first; empty where the table has no such column
};

/// What an answer to table::read() says; empty: no such row. Throws lock_error (store_refused) when it
/// can't be one.
[[nodiscard]] std::optional<row_state> row_in(const table& rows, sql::answer given);

/// What a row tells about a write whose answer never came. `open`: it has not happened, and may still.
enum class fate : std::uint8_t { written, open, dead, unknown };

/// Pure. The id among the row's writers says that it was written. It is dead when the row went on
/// without it: at another version, with all the writers since then known. Whoever raises the version
/// by hand, and adds no id, makes fewer known, never more.
[[nodiscard]] fate fate_of(const pending_write& write, const row_state& row);

}  // namespace sallyport::optimistic
