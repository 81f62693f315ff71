#include "backends/mariadb/answers.hpp"

#include "backends/sql/numbers.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace sallyport::backends::mariadb {
namespace {

/// What the server says of it, and what we add.
struct known_error {
  std::string_view code;
  errc meaning;
  std::string_view advice;
  bool busy = false;  // the server is there, and others are in the way
};

constexpr std::array known{
    // Undone, and it passes.
    known_error{"1205", errc::unavailable,
                "; another transaction keeps a lock's name (innodb_lock_wait_timeout)", true},
    known_error{"1213", errc::unavailable, "", true},
    known_error{"1020", errc::unavailable, "", true},
    known_error{"1021", errc::unavailable, ""},
    known_error{"1040", errc::unavailable, ""},
    known_error{"1041", errc::unavailable, ""},
    known_error{"1047", errc::unavailable, "; a node of a cluster that is not part of it"},
    known_error{"1114", errc::unavailable, ""},
    known_error{"1203", errc::unavailable, ""},
    known_error{"1226", errc::unavailable, ""},
    known_error{"1290", errc::unavailable, "; read_only is on: it is a replica, or is maintained"},
    known_error{"1792", errc::unavailable, "; its transactions are read only"},
    known_error{"1836", errc::unavailable, "; the server runs in read-only mode"},
    // It may have come after the commit.
    known_error{"1053", errc::outcome_unknown, ""},
    known_error{"1180", errc::outcome_unknown, ""},
    known_error{"1317", errc::outcome_unknown, "; somebody cancelled it", true},
    known_error{"1927", errc::outcome_unknown, "; somebody ended the connection"},
    known_error{"1969", errc::outcome_unknown, "; max_statement_time", true},
    known_error{"3024", errc::outcome_unknown, "; max_execution_time", true},
    // It stays.
    known_error{"1142", errc::store_refused, "; docs/mariadb.md says which rights the user needs"},
    known_error{"1143", errc::store_refused, "; docs/mariadb.md says which rights the user needs"},
    known_error{"1370", errc::store_refused, "; docs/mariadb.md says which rights the user needs"},
    known_error{
        "1146", errc::store_refused,
        "; somebody has removed what Sallyport needs: run what 'sallyport schema ADDRESS' prints"},
    known_error{
        "1305", errc::store_refused,
        "; somebody has removed what Sallyport needs: run what 'sallyport schema ADDRESS' prints"},
    known_error{"1665", errc::store_refused,
                "; with binlog_format = STATEMENT no transaction can be read committed: set MIXED "
                "or ROW"},
};

}  // namespace

base::failure failure_of(const reply& error) {
  std::string detail = "the MariaDB server said: " + error.error + " (" + error.error_code + ")";
  const auto* const found = std::ranges::find(known, error.error_code, &known_error::code);
  if (found == known.end()) return {make_error_code(errc::store_refused), std::move(detail)};
  detail += found->advice;
  return {make_error_code(found->meaning), std::move(detail), found->busy};
}

bool worth_repeating(const reply& said) noexcept { return said.error_code == "1213"; }

std::uint64_t position_in(const reply& said) noexcept {
  if (said.rows.size() != 1 || said.rows.front().empty()) return 0;
  // {2, ask again after ms, 0, permits, how many stand before it}
  std::string_view text = said.rows.front().front();
  if (std::ranges::count(text, ',') != 4) return 0;
  text.remove_prefix(text.rfind(',') + 1);
  return static_cast<std::uint64_t>(std::max<std::int64_t>(sql::number_in(text), 0));
}

}  // namespace sallyport::backends::mariadb
