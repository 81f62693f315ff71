#include "backends/postgres/answers.hpp"

#include "backends/sql/numbers.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

namespace sallyport::backends::postgres {

using backend_api::granted;
using sql::count_of;
using sql::number_in;
using sql::span_of;
using sql::token_of;

base::failure failure_of(const reply& error) {
  const std::string_view code = error.error_code;
  std::string detail = "the PostgreSQL server said: " + error.error + " (" + error.error_code + ")";
  // What passes by itself: deadlocks, lock_timeout, statement_timeout, a server that stops, is full or
  // cannot be written to.
  const bool passes = code.starts_with("40") || code.starts_with("53") || code.starts_with("55P") ||
                      code.starts_with("57") || code.starts_with("08") || code.starts_with("58") ||
                      code == "25006";
  if (code == "25006") {
    detail += "; it is a read-only replica, or default_transaction_read_only is on";
  } else if (code == "55P03") {
    detail += "; another transaction keeps a lock's name (lock_timeout)";
  } else if (code == "57014") {
    detail += "; statement_timeout, or somebody cancelled it";
  } else if (code == "42501") {
    detail += "; docs/postgres.md says which rights the role needs";
  } else if (code == "SP001") {
    detail += "; set default_transaction_isolation of the role or the pooler to 'read committed'";
  } else if (code == "26000" || code == "42P05") {
    detail +=
        "; a pooler stands before the server and hands out transactions: say pooler=transaction";
  } else if (code == "42P01" || code == "42883" || code == "3F000") {
    detail += "; somebody has removed what Sallyport needs, and open() makes it again";
  }
  // The server is there, and others are in the way.
  const bool busy = code.starts_with("40") || code == "55P03" || code == "57014";
  return {make_error_code(passes ? errc::unavailable : errc::store_refused), std::move(detail),
          busy};
}

bool worth_repeating(const reply& said) noexcept {
  return said.error_code == "40001" || said.error_code == "40P01";
}

std::optional<notice> parse_notice(std::string_view message) {
  std::vector<std::string_view> words;
  while (!message.empty()) {
    const auto end = std::min(message.find(' '), message.size());
    words.push_back(message.substr(0, end));
    message.remove_prefix(std::min(end + 1, message.size()));
  }
  if (words.size() < 2 || words[1].size() != 32) return std::nullopt;
  notice found;
  const char* const middle = words[1].data() + 16;
  const char* const end = words[1].data() + 32;
  if (std::from_chars(words[1].data(), middle, found.holder.high, 16).ptr != middle ||
      std::from_chars(middle, end, found.holder.low, 16).ptr != end) {
    return std::nullopt;
  }
  if (words[0] == "l") return found;
  if (words[0] != "g" || words.size() != 6) return std::nullopt;
  found.grant = granted{.tokens = {token_of(number_in(words[2])), token_of(number_in(words[3]))},
                        .remaining = span_of(number_in(words[4])),
                        .provisional = true,
                        .permits = count_of(number_in(words[5]))};
  return found;
}

}  // namespace sallyport::backends::postgres
