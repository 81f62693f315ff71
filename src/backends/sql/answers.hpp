#pragma once

#include "backend_api/backend.hpp"
#include "backends/sql/statement.hpp"
#include "base/result.hpp"
#include <sallyport/inspect.hpp>

#include <cstddef>
#include <variant>
#include <vector>

/// What the answers of the server's procedures mean: one text "{1,2,3}" of whole numbers, or the rows
/// of `look`, whose bytes are written as "6162" (a server's own notation depends on its settings) and
/// whose truths as t and f. Pure. Every decoder turns answers that it does not understand into a
/// failure. REQUIRES: no error of the server.
namespace sallyport::backends::sql {

/// Procedures that lock a name do something for so many contenders at most. Whoever needs more says so:
/// either the call did nothing yet but part of what had to be done for others, and is to be repeated...
[[nodiscard]] bool says_repeat(const reply& said) noexcept;
/// ... or it is done, and more has to be done for others: then its answer has one number more than the
/// `usual` ones.
[[nodiscard]] bool says_more(const reply& said, std::size_t usual) noexcept;

[[nodiscard]] base::result<backend_api::acquire_answer> acquire_answer_of(const reply& said);
/// As many as were asked for.
[[nodiscard]] base::result<std::vector<backend_api::renew_answer>> renew_answers_of(
    const reply& said, std::size_t asked);
[[nodiscard]] base::result<backend_api::leave_answer> leave_answer_of(const reply& said);
[[nodiscard]] base::result<bool> set_value_answer_of(const reply& said);
[[nodiscard]] base::result<std::monostate> break_answer_of(const reply& said);
/// In byte order of names.
[[nodiscard]] base::result<std::vector<lock_info>> look_answer_of(const reply& said);

}  // namespace sallyport::backends::sql
