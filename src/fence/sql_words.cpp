#include "fence/sql_words.hpp"

#include "fence/door.hpp"
#include "fence/gate_state.hpp"
#include <sallyport/error.hpp>
#include <sallyport/fence_sql.hpp>
#include <sallyport/types.hpp>

#include <algorithm>
#include <cctype>
#include <cstddef>

namespace sallyport::fence {
namespace {

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U; }

/// The rules of a lock's name, but for its length.
bool is_plain_text(std::string_view text, std::string* why) {
  while (!text.empty()) {
    std::size_t part = std::min(text.size(), lock_name::max_bytes);
    while (part < text.size() && part > 0 && continues_character(text[part])) --part;
    if (part == 0) {
      *why = "it is not UTF-8";
      return false;
    }
    if (!lock_name::acceptable(text.substr(0, part), why)) return false;
    text.remove_prefix(part);
  }
  return true;
}

}  // namespace

table_name split_table(std::string_view text) {
  const auto dot = text.find('.');
  if (dot == std::string_view::npos) return {.schema = {}, .name = std::string(text)};
  // An empty schema is a mistake that quoting has to see.
  return {.schema = dot == 0 ? std::string(1, '\0') : std::string(text.substr(0, dot)),
          .name = std::string(text.substr(dot + 1))};
}

std::string quoted_table(sql::dialect whose, const table_name& table) {
  const std::string name = sql::quoted(whose, table.name);
  return table.schema.empty() ? name : sql::quoted(whose, table.schema) + "." + name;
}

std::string literal(sql::dialect whose, std::string_view text) {
  std::string out = "'";
  for (const char each : text) {
    if (each == '\'') out += '\'';
    out += each;
  }
  out += '\'';
  if (text.find('\\') == std::string_view::npos) return out;
  // What a backslash means depends on a setting; so none is written.
  if (whose == sql::dialect::sqlite) return out;
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    hex += {digits[byte >> 4U], digits[byte & 0xfU]};
  }
  return whose == sql::dialect::mariadb ? "CONVERT(X'" + hex + "' USING utf8mb4)"
                                        : "convert_from(decode('" + hex + "', 'hex'), 'UTF8')";
}

void check_lock_text(std::string_view lock) {
  if (std::string why; !is_plain_text(lock, &why)) {
    throw lock_error(errc::bad_name,
                     "fencing gate: the lock's name can't be kept in a database: " + why);
  }
}

void check_resource(std::string_view resource) {
  if (std::string why; !lock_name::acceptable(resource, &why)) {
    throw lock_error(errc::bad_option, "fencing gate: the resource's name is not usable: " + why);
  }
}

std::int64_t checked_token(const pass& shown) {
  value_or_throw(check_pass(shown));
  check_lock_text(shown.lock);
  if (shown.token.value() > sql_gate::max_token) {
    throw lock_error(errc::bad_option, "fencing gate: the token " +
                                           std::to_string(shown.token.value()) +
                                           " is above 2^63-1, which no database's BIGINT can keep");
  }
  return static_cast<std::int64_t>(shown.token.value());
}

}  // namespace sallyport::fence
