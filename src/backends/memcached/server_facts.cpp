#include "backends/memcached/server_facts.hpp"

#include <charconv>
#include <chrono>
#include <string_view>

namespace sallyport::backends::memcached {
namespace {

using namespace std::chrono_literals;

std::int64_t number_in(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// "1.6.18" is at least 1.6.
bool speaks_meta(std::string_view version) {
  int major = 0;
  int minor = 0;
  const char* const end = version.data() + version.size();
  const auto [dot, error] = std::from_chars(version.data(), end, major);
  if (error != std::errc{} || dot == end) return false;
  std::from_chars(dot + 1, end, minor);
  return major > 1 || (major == 1 && minor >= 6);
}

}  // namespace

server_facts facts_in(const std::vector<answer_line>& lines) {
  server_facts facts;
  std::int64_t time = 0;
  bool separate = false;
  std::int64_t limit = 0;
  for (const answer_line& each : lines) {
    const std::string_view line = each.text;
    if (!line.starts_with("STAT ")) continue;
    const auto end = line.find(' ', 5);
    if (end == std::string_view::npos) continue;
    const std::string_view name = line.substr(5, end - 5);
    const std::string_view value = line.substr(end + 1);
    if (name == "version") facts.version = value;
    if (name == "pid") facts.pid = number_in(value);
    if (name == "uptime") facts.uptime = number_in(value);
    if (name == "time") time = number_in(value);
    if (name == "cas_enabled") facts.cas = value == "yes";
    // `stats` has a counter of the same name.
    if (name == "evictions" && (value == "on" || value == "off")) facts.evicts = value == "on";
    if (name == "temp_lru") separate = value == "yes";
    if (name == "temporary_ttl") limit = number_in(value);
    if (name == "memory_file") facts.keeps_file = value != "(null)";
  }
  facts.started = time - facts.uptime;
  if (separate) facts.unevicted_seconds = limit;
  return facts;
}

std::string objection_to(const server_facts& facts) {
  if (!speaks_meta(facts.version)) {
    return "it is memcached '" + facts.version + "'; locks need 1.6 or later";
  }
  if (!facts.cas) return "it runs without CAS (-C); locks need it: start it without -C";
  return {};
}

sallyport::capabilities capabilities_of(const server_facts& facts, bool connected) {
  sallyport::capabilities all;
  all.elections = true;
  all.tells_kind = true;
  all.lists = false;
  all.min_lease = 100ms;
  all.max_lease = 24h;
  all.lease_granularity = 1s;
  all.caveats = {
      "memcached is a cache. A restart, a flush_all or a delete takes all or some locks away at "
      "once, and others enter while their holders still believe in them: a holder is told when the "
      "connection breaks, or at its next renewal, a third of the lease later at most.",
      "There is no fencing: tokens are the server's CAS numbers, which begin anew with every "
      "restart. For what must not be written by a late holder use another store.",
      "A killed holder delays others by its lease, rounded up to whole seconds, and up to two "
      "seconds more: the server's clock is as coarse as that.",
      "A server that stood still (SIGSTOP, a frozen machine, no processor for seconds) may end "
      "what it stores in the first moments after that as much too early as it stood.",
      "Waiters ask again and again, in no order; whoever asks first enters. A client that has just "
      "left a lock that others ask for lets them ask first.",
      "Locks can't be listed: memcached cannot enumerate its items reliably.",
  };
  if (!connected) {
    all.caveats.emplace_back(
        "The server could not be reached when the client was opened, so its settings are unknown: "
        "it may evict locks when its memory is full.");
  } else if (facts.evicts) {
    all.caveats.emplace_back(
        facts.unevicted_seconds > 0
            ? "When its memory is full the server evicts items, but none that live for less than " +
                  std::to_string(facts.unevicted_seconds) +
                  " s: keep leases more than two seconds below that."
            : "When its memory is full the server evicts items, locks among them. Give locks a "
              "server of their own, or start it with -o temporary_ttl=N: items of less than N "
              "seconds are not evicted.");
  } else {
    all.caveats.emplace_back(
        "The server does not evict (-M): when its memory is full, nobody can enter or renew.");
  }
  return all;
}

}  // namespace sallyport::backends::memcached
