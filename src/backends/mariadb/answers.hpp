#pragma once

#include "backends/sql/statement.hpp"
#include "base/result.hpp"

#include <cstdint>

/// What the server's errors mean. Pure.
namespace sallyport::backends::mariadb {

using sql::reply;

/// A server's error as a failure. What has surely undone the transaction and will pass is
/// `unavailable`; what will not pass, `store_refused`, in the server's words; and what may have come
/// after the commit, as a kill may, `outcome_unknown`.
[[nodiscard]] base::failure failure_of(const reply& error);
/// Whether the same call may well succeed if it is just repeated: a deadlock.
[[nodiscard]] bool worth_repeating(const reply& said) noexcept;
/// How many stand before one that was told to wait; zero where it was not told.
[[nodiscard]] std::uint64_t position_in(const reply& said) noexcept;

}  // namespace sallyport::backends::mariadb
