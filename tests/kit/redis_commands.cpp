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

command_counts count_commands(redis_probe& probe) {
  const std::string text = statistics(probe);
  command_counts counts;
  // What a script calls is counted under its own name: these are the ones that only clients send.
  for (const std::string_view name : {"eval", "evalsha", "subscribe", "ping", "script|load",
                                      "client|setname", "auth", "select"}) {
    counts.of_clients += calls_in(text, name);
  }
  counts.scripts = calls_in(text, "eval") + calls_in(text, "evalsha");
  constexpr std::string_view calls = "calls=";
  for (auto at = text.find("cmdstat_"); at != std::string::npos;
       at = text.find("cmdstat_", at + 1)) {
    counts.all += std::stoull(text.substr(text.find(calls, at) + calls.size(), 20));
  }
  return counts;
}

}  // namespace sallyport::kit
