#pragma once

#include <sallyport/capabilities.hpp>

#include <string_view>

/// What every lock in an SQL server promises, and what it does not.
namespace sallyport::backends::sql {

/// All that the procedures do. Who the store is and what else must be known is up to the backend.
[[nodiscard]] sallyport::capabilities promises();

inline constexpr std::string_view clock_caveat =
    "Leases end by the server's wall clock: a step of that clock can end one early and let two in. "
    "Tokens keep their order; fence what must not be written by a late holder.";

inline constexpr std::string_view unreached_caveat =
    "The server could not be reached when the client was opened, so its settings are unknown; what "
    "is said here is the least that can be promised.";

}  // namespace sallyport::backends::sql
