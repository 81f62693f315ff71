#pragma once

#include <sallyport/inspect.hpp>

#include <span>
#include <string>

namespace sallyport::cli {

/// `sallyport ls`, `who`, `break`: each returns the exit code and throws command_failure and
/// lock_error.
int list_command(std::span<char* const> arguments);
int who_command(std::span<char* const> arguments);
int break_command(std::span<char* const> arguments);

/// Writes all of it to standard output. Throws command_failure (74) when that is not possible.
void print(const std::string& text);

}  // namespace sallyport::cli
