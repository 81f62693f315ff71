#include "bench/harness/options.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

namespace sallyport::bench {
namespace {

double parse_number(std::string_view name, std::string_view text, double most) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value > 0 && value <= most)) {
    throw usage_error(std::string(name) + " takes a number above 0, at most " +
                      std::to_string(static_cast<int>(most)) + "; not '" + std::string(text) + "'");
  }
  return value;
}

}  // namespace

options parse_options(std::span<const std::string_view> arguments) {
  options made;
  if (std::find(arguments.begin(), arguments.end(), "--quick") != arguments.end()) {
    made.rounds = 3;
    made.time = seconds{0.1};
    made.hold = seconds{12};
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    const auto value = [&] {
      if (i + 1 == arguments.size()) throw usage_error(std::string(name) + " needs a value");
      return arguments[++i];
    };
    if (name == "--rounds") {
      const double count = parse_number(name, value(), max_rounds);
      made.rounds = static_cast<int>(count);
      if (count != made.rounds) throw usage_error("--rounds takes a whole number");
    } else if (name == "--seconds") {
      made.time = seconds{parse_number(name, value(), max_seconds)};
    } else if (name == "--hold") {
      made.hold = seconds{parse_number(name, value(), max_seconds)};
    } else if (name == "--json") {
      made.json_path = value();
    } else if (name == "--only") {
      made.only = value();
    } else if (name == "--list") {
      made.list = true;
    } else if (name == "--help" || name == "-h") {
      made.help = true;
    } else if (name != "--quick") {
      throw usage_error("unknown argument '" + std::string(name) + "'");
    }
  }
  return made;
}

std::string_view usage() noexcept {
  return R"(usage: bench [--rounds N] [--seconds S] [--hold S] [--json FILE] [--only PATTERN] [--list] [--quick]

Measures Sallyport beside the physical limits of the machine and prints a table.

  --rounds N      rounds in which the programs take turns (7)
  --seconds S     how long a program runs in a round (0.3)
  --hold S        how long the leases are held that are measured once, after the rounds (35)
  --json FILE     also writes the figures to FILE; "-": to standard output, instead of the table
  --only PATTERN  only programs whose id or group contains PATTERN, and their limits
  --list          shows ids and titles, and measures nothing
  --quick         3 rounds of 0.1 s, leases held for 12 s: to see that it works, not to compare

The status is 0 when everything could be measured, whether or not bars were met; 1 when something
failed; 64 when the command line makes no sense.
)";
}

std::vector<program> select(std::span<const program> all, std::string_view pattern) {
  std::set<std::string> wanted;
  for (const program& each : all) {
    if (each.id.find(pattern) == std::string::npos &&
        each.group.find(pattern) == std::string::npos) {
      continue;
    }
    wanted.insert(each.id);
    if (!each.limit.empty()) wanted.insert(each.limit);
  }
  std::vector<program> chosen;
  std::copy_if(all.begin(), all.end(), std::back_inserter(chosen),
               [&wanted](const program& each) { return wanted.contains(each.id); });
  return chosen;
}

}  // namespace sallyport::bench
