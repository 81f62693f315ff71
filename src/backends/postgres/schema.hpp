#pragma once

#include <string>
#include <string_view>

namespace sallyport::backends::postgres {

/// The version of tables and functions that this program speaks to.
inline constexpr int schema_version = 1;

/// schema.sql; written by CMake.
extern const char* const schema_template;

/// Makes tables and functions where they are not yet; all of it in one transaction, if it is said in
/// one piece. Changes nothing that is not ours. REQUIRES: a name that parse_address took.
[[nodiscard]] std::string schema_text(std::string_view schema);

/// The same for people: a transaction, and what `role` needs to use it. Empty role: the rights are
/// shown in a comment.
[[nodiscard]] std::string schema_script(std::string_view schema, std::string_view role);

}  // namespace sallyport::backends::postgres
