#pragma once

#include <span>

namespace sallyport::cli {

/// `sallyport run`: returns the exit code. Throws command_failure and lock_error. REQUIRES: no
/// thread was started yet.
int run_command(std::span<char* const> arguments);

}  // namespace sallyport::cli
