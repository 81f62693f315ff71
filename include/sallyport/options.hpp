#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sallyport {

class observer;

/// Whether a lease is kept alive in the background.
enum class renewal : std::uint8_t {
  automatic,  ///< renewed every third of its length until released or lost
  never,      ///< ends by itself after lease_length; useful for "at most once per ..." jobs
};

/// How one lock behaves. Use designated initialisers; the lock's constructor validates.
struct lock_options {
  /// How long a grant is good for without renewal: the time a dead holder can delay others.
  std::chrono::milliseconds lease_length{std::chrono::seconds{30}};
  renewal renew = renewal::automatic;
  /// Threads of one process pass the lock among themselves this many times before it goes back
  /// through the store. 1 gives FIFO over all threads of all processes.
  std::uint32_t local_turns = 16;
  /// ... and for at most this long.
  std::chrono::milliseconds local_turn_time{std::chrono::seconds{1}};
  /// Refuse to work (not_supported) on a store that does not promise fencing tokens.
  bool require_fencing = false;
};

/// How a client behaves.
struct client_options {
  /// Shown by `who`: which program holds the lock. Empty: the process's own name.
  std::string label{};
  /// The folder from which the backend is loaded, if its store is the first of its kind that this
  /// process opens and the backend was not linked into the program. Nobody but root, the user of the
  /// process and those who can replace the program may be able to write there. Empty: the folder that the
  /// environment variable SALLYPORT_MODULES names; without one, where Sallyport was installed.
  std::string modules{};
  /// Another process that must be dead as well before a store that notices deaths (`local:`) takes
  /// this client's leases for abandoned: a guard that cleans up after a killed holder, say. 0: none.
  /// Must be running when the client is opened; elsewhere it has no effect, there a dead holder's
  /// lease ends by time alone.
  std::int64_t companion_pid = 0;
  /// Told what happens; called on the notifier's thread. May be null.
  std::shared_ptr<observer> watcher{};
  /// Further ones, told of each event after `watcher`, in this order: to count and to log, say.
  std::vector<std::shared_ptr<observer>> watchers{};
  /// How fast clocks may run apart, as a share of the lease. chrony may slew by 8 %; use 0.1 where
  /// that is so.
  double clock_drift = 0.01;
  /// How long one request to the store may take before its outcome counts as unknown.
  std::chrono::milliseconds request_timeout{std::chrono::seconds{2}};
  /// How long a waiting acquire goes on while the store cannot be reached, also when it never was, before
  /// it fails with unavailable.
  std::chrono::milliseconds store_patience{std::chrono::seconds{10}};
  /// How often a waiter re-reads its state when nothing is heard: the price of a lost notification.
  std::chrono::milliseconds heartbeat{std::chrono::seconds{1}};
  /// How many callers of this client may wait for one name; one more fails with too_many_waiters.
  /// Callers that do not queue inside the process (readers, permits, candidates, mutexes with
  /// local_turns = 1) are counted together, over all names.
  std::uint32_t max_waiters_per_name = 100'000;
};

}  // namespace sallyport
