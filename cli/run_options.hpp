#pragma once

#include "cli/message.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sallyport::cli {

/// As what `run` takes the lock.
enum class wanted_lock {
  plain,      ///< exclusive; a mutex
  exclusive,  ///< -x: the writer of a lock that others take with -s
  shared,     ///< -s
  permit      ///< --permits
};

/// What `sallyport run` was asked to do.
struct run_options {
  std::string name;
  std::vector<char*>
      command;  ///< argv of the command; points into main's arguments, ends with null
  wanted_lock wanted = wanted_lock::plain;
  std::uint32_t permits = 0;
  std::optional<std::chrono::milliseconds> wait;  ///< zero: one try; empty: as long as it takes
  /// How long a store that is away is waited for; empty: as long as for the lock, or usual_store_wait.
  std::optional<std::chrono::milliseconds> store_wait;
  int not_acquired_code;
  std::chrono::milliseconds lease_length{std::chrono::seconds{30}};
  bool fixed = false;
  std::optional<std::chrono::milliseconds> grace;
  std::string label;  ///< by default the command's name, without folders and arguments
  std::string store;
  loudness loud = loudness::normal;
  bool help = false;
};

/// Reads the arguments after `run`. `default_store` is used where --store is not given. Throws
/// usage_error.
[[nodiscard]] run_options read_run_options(std::span<char* const> arguments,
                                           std::string_view default_store);

/// For a store that is away when no wait was given: most restarts and fail-overs are shorter.
inline constexpr std::chrono::seconds usual_store_wait{30};

/// How long a store that is away is waited for: not at all by who does not wait for the lock.
[[nodiscard]] std::chrono::milliseconds store_patience(const run_options& options);

/// How long before the deadline the command is asked to stop.
[[nodiscard]] std::chrono::milliseconds default_grace(std::chrono::milliseconds lease_length);

}  // namespace sallyport::cli
