#pragma once

#include "cli/message.hpp"
#include <sallyport/fence_pass.hpp>

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace sallyport::cli {

/// What `sallyport fence run`, `fence check` and `fence rebind` were asked to do.
struct fence_options {
  std::string gate;  ///< the path of the gate's file
  fence::pass shown;
  std::vector<char*> command;  ///< of run; points into main's arguments, ends with null
  std::chrono::milliseconds wait{std::chrono::seconds{10}};
  bool existing = false;     ///< refuse to make the gate's file
  bool json = false;         ///< check and rebind
  std::string from{};        ///< rebind: the lock that the gate is bound to
  bool restart = false;      ///< rebind: the numbers begin anew
  std::string sql{};         ///< rebind: whose statement to print; then `gate` is a resource
  std::string gate_table{};  ///< rebind, with `sql`: where the numbers are
  loudness loud = loudness::normal;
  bool help = false;
};

/// Gives a variable of the environment; null when there is none.
using variable_reader = std::function<const char*(const char*)>;

/// Reads the arguments after `fence run`. The token is the second word, or (left out before --, or
/// "-") SALLYPORT_TOKEN; the lock is --lock, or SALLYPORT_FENCE_LOCK, or SALLYPORT_LOCK. Throws
/// usage_error.
[[nodiscard]] fence_options read_fence_run(std::span<char* const> arguments,
                                           const variable_reader& variable);
/// Reads the arguments after `fence check`, likewise.
[[nodiscard]] fence_options read_fence_check(std::span<char* const> arguments,
                                             const variable_reader& variable);
/// Reads the arguments after `fence rebind`, likewise; token and lock are those of the new lock.
[[nodiscard]] fence_options read_fence_rebind(std::span<char* const> arguments,
                                              const variable_reader& variable);

}  // namespace sallyport::cli
