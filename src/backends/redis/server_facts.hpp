#pragma once

#include "backends/redis/reply.hpp"
#include <sallyport/capabilities.hpp>

#include <string>
#include <vector>

namespace sallyport::backends::redis {

/// What a server said of itself, as far as locks care.
struct server_facts {
  std::string version;             ///< empty: it did not say
  std::string run_id;              ///< another one after every restart; empty: it did not say
  bool replica = false;            ///< it follows another server
  bool cluster = false;            ///< it is a node of a cluster
  unsigned replicas = 0;           ///< how many follow it
  std::string eviction;            ///< maxmemory-policy; empty: not told
  bool appends = false;            ///< appendonly
  std::string fsync;               ///< appendfsync; empty: not told
  bool unsynced_rewrites = false;  ///< no-appendfsync-on-rewrite
  bool settings_known = false;     ///< CONFIG GET was allowed

  /// Whatever was answered is on disk, always.
  [[nodiscard]] bool durable() const { return appends && fsync == "always" && !unsynced_rewrites; }
};

/// The commands whose replies tell it, in this order: INFO server, replication and cluster, CONFIG
/// GET.
[[nodiscard]] std::vector<std::vector<std::string>> questions_about_a_server();
/// Reads the replies; errors (an ACL that forbids them) leave the facts unknown.
[[nodiscard]] server_facts facts_in(const std::vector<reply>& said);

/// What the locks of such a server promise, and what they do not.
/// `replicas`: how many have to have a grant before it counts.
[[nodiscard]] sallyport::capabilities capabilities_of(const server_facts& facts, bool connected,
                                                      unsigned replicas);

}  // namespace sallyport::backends::redis
