#pragma once

#include "backend_api/backend.hpp"
#include "backends/sql/statement.hpp"
#include "base/result.hpp"

#include <optional>
#include <string>
#include <string_view>

/// What the server's errors and notices mean. Pure.
namespace sallyport::backends::postgres {

using sql::reply;

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
