#pragma once

#include "tests/kit/redis_probe.hpp"

#include <cstdint>
#include <string>

namespace sallyport::kit {

/// How often the server has executed a command ("evalsha", "script|load"), also inside of scripts.
[[nodiscard]] std::uint64_t calls_of(redis_probe& probe, const std::string& command);
/// How many commands clients of ours have sent; what scripts call is not among them.
[[nodiscard]] std::uint64_t commands_of_clients(redis_probe& probe);
/// How many scripts the server has run.
[[nodiscard]] std::uint64_t scripts_run(redis_probe& probe);
/// How many commands the server has executed, whoever called them: clients, scripts, and probes.
[[nodiscard]] std::uint64_t commands_executed(redis_probe& probe);

}  // namespace sallyport::kit
