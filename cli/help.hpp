#pragma once

#include <string_view>

namespace sallyport::cli {

/// Prints the page on `topic` (a command; empty: the overview) to standard output and returns 0.
/// Throws usage_error for a topic that does not exist.
int print_help(std::string_view topic);
int print_version();

}  // namespace sallyport::cli
