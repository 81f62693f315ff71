#include "backends/redis/server_facts.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string_view>

namespace sallyport::backends::redis {
namespace {

using namespace std::chrono_literals;

/// The value of "name:value\r\n" in what INFO says; empty: not there.
std::string_view field(std::string_view info, std::string_view name) {
  std::size_t at = 0;
  while (at < info.size()) {
    const auto end = std::min(info.find("\r\n", at), info.size());
    const std::string_view line = info.substr(at, end - at);
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ':') {
      return line.substr(name.size() + 1);
    }
    at = end + 2;
  }
  return {};
}

void read_setting(const reply& said, server_facts& facts) {
  if (!said.is_array()) return;
  facts.settings_known = true;
  for (std::size_t i = 0; i + 1 < said.elements.size(); i += 2) {
    const std::string& name = said.elements[i].text;
    const std::string& value = said.elements[i + 1].text;
    if (name == "maxmemory-policy") facts.eviction = value;
    if (name == "appendonly") facts.appends = value == "yes";
    if (name == "appendfsync") facts.fsync = value;
    if (name == "no-appendfsync-on-rewrite") facts.unsynced_rewrites = value == "yes";
  }
}

}  // namespace

std::vector<std::vector<std::string>> questions_about_a_server() {
  return {{"INFO", "server"},
          {"INFO", "replication"},
          {"INFO", "cluster"},
          {"CONFIG", "GET", "maxmemory-policy"},
          {"CONFIG", "GET", "*append*"}};
}

server_facts facts_in(const std::vector<reply>& said) {
  server_facts facts;
  for (const reply& each : said) {
    if (each.is_text()) {
      if (const auto version = field(each.text, "redis_version"); !version.empty()) {
        facts.version = version;
      }
      if (const auto run_id = field(each.text, "run_id"); !run_id.empty()) facts.run_id = run_id;
      if (field(each.text, "role") == "slave") facts.replica = true;
      if (field(each.text, "cluster_enabled") == "1") facts.cluster = true;
      for (const char digit : field(each.text, "connected_slaves")) {
        facts.replicas = facts.replicas * 10 + static_cast<unsigned>(digit - '0');
      }
    }
    read_setting(each, facts);
  }
  return facts;
}

sallyport::capabilities capabilities_of(const server_facts& facts, bool connected,
                                        unsigned replicas) {
  sallyport::capabilities all;
  all.fencing = true;
  all.fifo = true;
  all.direct_handoff = true;
  all.shared_locks = true;
  all.semaphores = true;
  all.elections = true;
  all.notices_death = false;
  all.tells_kind = true;
  all.survives_store_restart = facts.durable();
  all.min_lease = 100ms;
  all.max_lease = 24h;
  // Leases end on a grid of milliseconds, by a clock that the server reads now and then.
  all.expiry_granularity = 2ms;
  all.caveats = {
      "Leases end by the server's wall clock: a step of that clock can end one early and let two "
      "in. Tokens keep their order; fence what must not be written by a late holder.",
      "Clients of other libraries that use the same key are kept out and keep us out, but they do "
      "not stand in the queue: first come first served holds among Sallyport's clients only.",
  };
  if (replicas > 0) {
    all.caveats.emplace_back(
        "replicas=" + std::to_string(replicas) +
        ": a grant or renewal counts when so many replicas have it, in memory. A fail-over that "
        "promotes one of the others can still forget it: let N be all replicas that may be "
        "promoted, and fence what must not be written by a late holder.");
  }
  if (!connected) {
    all.caveats.emplace_back(
        "The server could not be reached when the client was opened, so its settings are unknown; "
        "what is said here is the least that can be promised.");
    return all;
  }
  if (facts.appends && facts.fsync == "always" && facts.unsynced_rewrites) {
    all.caveats.emplace_back(
        "no-appendfsync-on-rewrite is yes: while the server saves or rewrites its file, "
        "appendfsync "
        "always does nothing, and a crash then forgets locks. Set it to no.");
  }
  if (!all.survives_store_restart) {
    all.caveats.emplace_back(
        "After a crash of the server locks may be forgotten (appendonly yes with appendfsync "
        "always "
        "keeps them). Tokens then go on from the server's clock, and so grow as long as that clock "
        "was not set back.");
  }
  if (replicas == 0 && (facts.replicas > 0 || facts.cluster)) {
    all.caveats.emplace_back(
        "Replication is asynchronous: a fail-over can forget a lock that was just granted, and two "
        "holders believe in it; the option replicas=N makes that rarer, only a fence makes it "
        "safe.");
  }
  if (!facts.settings_known) {
    all.caveats.emplace_back(
        "The server's settings could not be read (CONFIG GET is not allowed): make sure that "
        "maxmemory-policy is noeviction.");
  } else if (!facts.eviction.empty() && facts.eviction != "noeviction") {
    all.caveats.emplace_back("maxmemory-policy is " + facts.eviction +
                             ": under memory pressure the server may delete locks. Set it to "
                             "noeviction.");
  }
  return all;
}

}  // namespace sallyport::backends::redis
