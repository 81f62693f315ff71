#include <sallyport/error.hpp>
#include <sallyport/sql.hpp>
#include <sallyport/types.hpp>

namespace sallyport::sql {

namespace {

char quote_of(dialect whose) {
  switch (whose) {
    case dialect::postgres:
    case dialect::sqlite:
      return '"';
    case dialect::mariadb:
      return '`';
  }
  return '"';
}

}  // namespace

std::string quoted(dialect whose, std::string_view name) {
  // What a lock's name may not hold, no identifier may, either.
  if (std::string why; !lock_name::acceptable(name, &why)) {
    throw lock_error(errc::bad_option, "a table's or column's name is not usable: " + why);
  }
  if (name.size() > max_identifier_bytes) {
    throw lock_error(errc::bad_option, "a table's or column's name has " +
                                           std::to_string(name.size()) + " bytes; at most " +
                                           std::to_string(max_identifier_bytes) + " are taken");
  }
  const char quote = quote_of(whose);
  std::string out(1, quote);
  for (const char each : name) {
    if (each == quote) out += quote;
    out += each;
  }
  return out + quote;
}

std::string placeholder(dialect whose, std::size_t index) {
  return whose == dialect::postgres ? "$" + std::to_string(index) : "?";
}

}  // namespace sallyport::sql
