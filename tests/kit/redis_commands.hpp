#pragma once

#include "tests/kit/redis_probe.hpp"

#include <cstdint>
#include <string>

namespace sallyport::kit {

/// How often the server has executed a command ("evalsha", "script|load"), also inside of scripts.
[[nodiscard]] std::uint64_t calls_of(redis_probe& probe, const std::string& command);

/// What the server has executed up to one moment.
struct command_counts {
  std::uint64_t of_clients = 0;  ///< what clients of ours have sent; what scripts call is not in it
  std::uint64_t scripts = 0;
  std::uint64_t all = 0;  ///< whoever called them: clients, scripts, and probes
};

[[nodiscard]] command_counts count_commands(redis_probe& probe);

}  // namespace sallyport::kit
