#pragma once

#include <sallyport/fence_pass.hpp>
#include <sallyport/sql.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

// What the gates for databases share. They throw lock_error: they stand at the public door.

namespace sallyport::fence {

/// A table's schema (may be empty) and its own name.
struct table_name {
  std::string schema{};
  std::string name{};
};

/// Takes `name` or `schema.name` apart at the first dot. Nothing is checked.
[[nodiscard]] table_name split_table(std::string_view text);
/// The table in quotes, with its schema. Throws bad_option.
[[nodiscard]] std::string quoted_table(sql::dialect whose, const table_name& table);

/// Text as a literal that means the same in every mode of the server. REQUIRES: UTF-8 without control
/// characters.
[[nodiscard]] std::string literal(sql::dialect whose, std::string_view text);

/// Refuses text that some database could not keep: not UTF-8, or control characters (a NUL among
/// them). Says bad_name.
void check_lock_text(std::string_view lock);
/// Refuses a resource's name: not 1 to 255 bytes of such text. Says bad_option.
void check_resource(std::string_view resource);
/// Refuses a pass that a database could not judge, and gives its token as the database's own number.
[[nodiscard]] std::int64_t checked_token(const pass& shown);

}  // namespace sallyport::fence
