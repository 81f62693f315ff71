#pragma once

#include <string>
#include <vector>

namespace sallyport::sim {

/// How often as long as an ordinary one a ticket lives at most in a world with small bounds.
inline constexpr int longest_small_stretch = 4;

/// A command as it is, or, with one of the defects planted that sit in a script, with that script
/// broken. The product's scripts are text and cannot ask `planted()`. With small bounds they do for a
/// few waiters what they are written to do for hundreds.
[[nodiscard]] const std::vector<std::string>& as_run_here(const std::vector<std::string>& command,
                                                          bool small_bounds);

}  // namespace sallyport::sim
