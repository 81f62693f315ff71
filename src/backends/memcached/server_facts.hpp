#pragma once

#include "backends/memcached/wire.hpp"
#include <sallyport/capabilities.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace sallyport::backends::memcached {

/// What a server says of itself (`stats` and `stats settings`).
struct server_facts {
  std::string version;
  std::int64_t pid = 0;
  std::int64_t uptime = 0;   ///< in seconds, by its own clock
  std::int64_t started = 0;  ///< `time` less `uptime`: the same for all of a process's life
  bool cas = true;
  bool evicts = true;       ///< no -M
  bool keeps_file = false;  ///< -e: items may outlive a restart
  /// Items of at most so many seconds are never evicted (-o temporary_ttl); 0: none.
  std::int64_t unevicted_seconds = 0;

  /// Whether this is the same process: after a restart all locks are gone.
  [[nodiscard]] bool same_process(const server_facts& other) const noexcept {
    return pid == other.pid && started == other.started;
  }
};

[[nodiscard]] server_facts facts_in(const std::vector<answer_line>& lines);
/// Why locks can't be kept there; empty: they can.
[[nodiscard]] std::string objection_to(const server_facts& facts);
[[nodiscard]] sallyport::capabilities capabilities_of(const server_facts& facts, bool connected);

}  // namespace sallyport::backends::memcached
