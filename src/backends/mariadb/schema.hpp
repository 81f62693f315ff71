#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sallyport::backends::mariadb {

/// The version of tables and procedures that this program speaks to.
inline constexpr int schema_version = 1;

/// schema.sql; written by CMake.
extern const char* const schema_template;

/// What all is said in, and tables and procedures are made in: what is not strict cuts off what is too
/// long. The server keeps it with a procedure.
inline constexpr const char* schema_mode =
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO'";

/// Makes tables and procedures where they are not yet, one statement after the other; the last one says
/// that all of it is there. REQUIRES: a prefix that parse_address took, and schema_mode.
[[nodiscard]] std::vector<std::string> schema_statements(const std::string& prefix);

/// Names what has our names and is not ours, in a row with one column; no row: nothing is.
[[nodiscard]] std::string question_for_foreigners(const std::string& prefix);

/// The same for people: a script for MariaDB's command, with the rights that `user` needs. Empty user:
/// the rights are shown in a comment.
[[nodiscard]] std::string schema_script(const std::string& prefix, const std::string& database,
                                        const std::string& user);

}  // namespace sallyport::backends::mariadb
