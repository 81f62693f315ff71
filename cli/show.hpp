#pragma once

#include "cli/json.hpp"
#include <sallyport/inspect.hpp>

#include <string>
#include <vector>

namespace sallyport::cli {

/// Locks as people read them: one line each, with an aligned head.
[[nodiscard]] std::string list_text(const std::vector<lock_info>& locks);
/// One lock with all its holders and waiters.
[[nodiscard]] std::string who_text(const lock_info& lock);

/// One lock as a JSON object. Tokens are strings: they may be larger than JavaScript's integers.
void write_json(json_writer& into, const lock_info& lock);

}  // namespace sallyport::cli
