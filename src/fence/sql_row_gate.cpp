#include "fence/sql_words.hpp"
#include <sallyport/error.hpp>
#include <sallyport/fence_sql.hpp>

#include <set>
#include <variant>

namespace sallyport::fence {

namespace {

/// A row that comes and goes while we look needs a few looks.
constexpr int most_looks = 4;

std::int64_t number_in(const sql::value& said) {
  if (const auto* const number = std::get_if<std::int64_t>(&said)) return *number;
  if (const auto* const text = std::get_if<std::string>(&said)) {
    // Some clients give every value as text.
    if (!text->empty() && text->find_first_not_of("0123456789") == std::string::npos &&
        text->size() < 19) {
      return std::stoll(*text);
    }
    throw lock_error(errc::store_refused,
                     "fencing gate: the fence column holds no whole number; make it a BIGINT");
  }
  return 0;
}

}  // namespace

std::string_view to_string(row_verdict answer) noexcept {
  switch (answer) {
    case row_verdict::written:
      return "written";
    case row_verdict::stale:
      return "stale";
    case row_verdict::no_such_row:
      return "no_such_row";
  }
  return "unknown";
}

sql_row_gate::sql_row_gate(sql::dialect whose, const std::string& table, const std::string& key,
                           const std::string& fence)
    : dialect_(whose),
      table_(quoted_table(whose, split_table(table))),
      key_(sql::quoted(whose, key)),
      fence_(sql::quoted(whose, fence)) {
  if (key_ == fence_) {
    throw lock_error(errc::bad_option, "fencing gate: key and fence are the same column");
  }
}

sql::statement sql_row_gate::update(const pass& shown, const sql::value& row,
                                    const std::vector<assignment>& set) const {
  const std::int64_t token = checked_token(shown);
  if (shown.mode != lock_mode::exclusive) {
    throw lock_error(errc::bad_option,
                     "fencing gate: a row keeps the token of one writer and can't judge a shared "
                     "pass; use sql_gate");
  }
  if (set.empty()) throw lock_error(errc::bad_option, "fencing gate: no column is to be set");
  sql::statement out;
  std::set<std::string> seen{key_, fence_};
  const auto bound = [&](const sql::value& one) {
    out.parameters.push_back(one);
    return sql::placeholder(dialect_, out.parameters.size());
  };
  std::string columns;
  for (const auto& [column, value] : set) {
    const std::string name = sql::quoted(dialect_, column);
    if (!seen.insert(name).second) {
      throw lock_error(errc::bad_option, "fencing gate: the column " + name +
                                             " is set twice, or is the row's key or fence");
    }
    columns += name + " = " + bound(value) + ", ";
  }
  out.text = "UPDATE " + table_ + " SET " + columns + fence_ + " = " + bound(token);
  out.text += " WHERE " + key_ + " = " + bound(row);
  out.text += " AND COALESCE(" + fence_ + ", 0) <= " + bound(token);
  return out;
}

sql::statement sql_row_gate::look_again(const sql::value& row) const {
  return {.text = "SELECT " + fence_ + " FROM " + table_ + " WHERE " + key_ + " = " +
                  sql::placeholder(dialect_, 1) +
                  // Otherwise a transaction of MariaDB reads what was there when it began.
                  (dialect_ == sql::dialect::mariadb ? " LOCK IN SHARE MODE" : ""),
          .parameters = {row}};
}

row_verdict sql_row_gate::update(const sql::executor& database, const pass& shown,
                                 const sql::value& row, const std::vector<assignment>& set) const {
  const sql::statement write = update(shown, row, set);
  const auto token = static_cast<std::int64_t>(shown.token.value());
  bool had_this_token = false;
  for (int look = 0; look < most_looks; ++look) {
    if (database(write).changed > 0) return row_verdict::written;
    const sql::answer seen = database(look_again(row));
    if (seen.rows.empty()) return row_verdict::no_such_row;
    const std::int64_t kept = number_in(seen.rows.front().at(0));
    if (kept > token) return row_verdict::stale;
    // The row had this token before the update that changed nothing, and after it: it already had
    // the new values, and this connection does not count such rows.
    if (had_this_token && kept == token) return row_verdict::written;
    had_this_token = kept == token;
  }
  throw lock_error(
      errc::unavailable,
      "fencing gate: the row came and went again and again while it was to be updated");
}

}  // namespace sallyport::fence
