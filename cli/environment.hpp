#pragma once

#include <sallyport/lease_clock.hpp>
#include <sallyport/store_entry.hpp>
#include <sallyport/types.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::cli {

/// What the command is told about its lock.
struct lock_facts {
  std::string name;
  std::optional<fencing_token> token;               ///< empty: semaphores, stores without fencing
  std::optional<lease_clock::time_point> deadline;  ///< fixed leases only
  std::string store;
  std::optional<store_entry> entry = {};  ///< what the store calls it, where it says so
  std::string fence_lock = {};            ///< with a token: what gates call the lock
  bool shared_token = false;              ///< with a token: others may hold the lock beside it
};

/// The command's environment: `inherited` (ends with null) without anything an outer `sallyport
/// run` said and without the variables in which the store's address says that secrets are, then
/// SALLYPORT_STORE, SALLYPORT_LOCK, SALLYPORT_TOKEN, SALLYPORT_FENCE_LOCK, SALLYPORT_MODE (for a
/// shared token only) and SALLYPORT_DEADLINE. A store that cannot be opened without a secret is withheld: SALLYPORT_STORE is then an address that
/// is refused, so that a `sallyport` inside never takes its locks elsewhere in silence; on etcd also ETCD_LOCK_KEY and ETCD_LOCK_REV, for
/// commands that were made for `etcdctl lock`. On other stores those of an outer `etcdctl lock` stay: that lock is held, too.
[[nodiscard]] std::vector<std::string> child_environment(const char* const* inherited,
                                                         const lock_facts& facts);

/// Seconds since boot with three decimals, rounded down: comparable with the first number of
/// /proc/uptime.
[[nodiscard]] std::string deadline_text(lease_clock::time_point deadline);

}  // namespace sallyport::cli
