#pragma once

#include "backend_api/backend.hpp"
#include "backends/postgres/statement.hpp"
#include "base/result.hpp"
#include <sallyport/inspect.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// What the answers of the schema's functions mean. Pure. Every decoder turns the server's own
/// errors, and answers that it does not understand, into a failure.
namespace sallyport::backends::postgres {

[[nodiscard]] base::result<backend_api::acquire_answer> acquire_answer_of(const reply& said);
/// As many as were asked for.
[[nodiscard]] base::result<std::vector<backend_api::renew_answer>> renew_answers_of(
    const reply& said, std::size_t asked);
[[nodiscard]] base::result<backend_api::leave_answer> leave_answer_of(const reply& said);
[[nodiscard]] base::result<bool> set_value_answer_of(const reply& said);
[[nodiscard]] base::result<std::monostate> break_answer_of(const reply& said);
/// In byte order of names.
[[nodiscard]] base::result<std::vector<lock_info>> look_answer_of(const reply& said);

/// A server's error as a failure. It has undone the transaction, so nothing happened: what will pass
/// is `unavailable`, the rest `store_refused`, in the server's words.
[[nodiscard]] base::failure failure_of(const reply& error);
/// Whether the same statement may well succeed if it is just repeated: a deadlock, a conflict of
/// serializable transactions.
[[nodiscard]] bool worth_repeating(const reply& said) noexcept;

/// What a message on a client's channel says.
struct notice {
  backend_api::holder_id holder;
  std::optional<backend_api::granted> grant;  ///< nothing: the grant was taken away
};
/// Nothing: not understood.
[[nodiscard]] std::optional<notice> parse_notice(std::string_view message);

}  // namespace sallyport::backends::postgres
