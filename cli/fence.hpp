#pragma once

#include <span>

namespace sallyport::cli {

/// `sallyport fence run|check|rebind|ddl`: returns the exit code and throws command_failure and lock_error.
int fence_command(std::span<char* const> arguments);

}  // namespace sallyport::cli
