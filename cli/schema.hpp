#pragma once

#include <span>

namespace sallyport::cli {

/// `sallyport schema`: what a database's administrator runs before others can take locks there.
/// Returns the exit code and throws command_failure and lock_error.
int schema_command(std::span<char* const> arguments);

}  // namespace sallyport::cli
