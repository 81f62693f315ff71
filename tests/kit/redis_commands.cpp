#include "tests/kit/redis_commands.hpp"

#include <string_view>

namespace sallyport::kit {
namespace {

// A line is "cmdstat_NAME:calls=N,usec=...".
std::string statistics(redis_probe& probe) { return probe.expect({"INFO", "commandstats"}).text; }

std::uint64_t calls_in(const std::string& all, std::string_view command) {
  const std::string line = "cmdstat_" + std::string(command) + ":calls=";
  const auto at = all.find(line);
  return at == std::string::npos ? 0 : std::stoull(all.substr(at + line.size(), 20));
}

}  // namespace

std::uint64_t calls_of(redis_probe& probe, const std::string& command) {
  return calls_in(statistics(probe), command);
}

std::uint64_t commands_of_clients(redis_probe& probe) {
  // What a script calls is counted under its own name: these are the ones that only clients send.
  const std::string all = statistics(probe);
  std::uint64_t sum = 0;
  for (const std::string_view name : {"eval", "evalsha", "subscribe", "ping", "script|load",
                                      "client|setname", "auth", "select"}) {
    sum += calls_in(all, name);
  }
  return sum;
}

std::uint64_t scripts_run(redis_probe& probe) {
  const std::string all = statistics(probe);
  return calls_in(all, "eval") + calls_in(all, "evalsha");
}

std::uint64_t commands_executed(redis_probe& probe) {
  const std::string all = statistics(probe);
  std::uint64_t sum = 0;
  for (auto at = all.find("cmdstat_"); at != std::string::npos; at = all.find("cmdstat_", at + 1)) {
    const std::string_view rest = std::string_view(all).substr(at);
    sum += std::stoull(std::string(rest.substr(rest.find("calls=") + 6, 20)));
  }
  return sum;
}

}  // namespace sallyport::kit
