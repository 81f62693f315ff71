#pragma once

#include <span>

namespace sallyport::cli {

/// `sallyport init`: tells the nodes of a quorum that they are new. Returns the exit code and throws
/// command_failure and lock_error.
int init_command(std::span<char* const> arguments);

}  // namespace sallyport::cli
