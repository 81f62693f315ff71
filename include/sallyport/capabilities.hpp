#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace sallyport {

/// What a store promises, in words a program can test. Returned by client::capabilities().
struct capabilities {
  /// tokens keep promise 4: they grow across holders, processes and restarts of clients
  bool fencing = false;
  bool fifo = false;            ///< waiters enter in the order in which they queued
  bool direct_handoff = false;  ///< the releasing operation itself installs the next waiter
  bool shared_locks = false;    ///< shared_mutex works here
  bool semaphores = false;      ///< semaphore works here
  bool elections = false;       ///< election works here
  bool lists = true;            ///< client::list works here
  bool notices_death = false;   ///< a killed holder is noticed at once, not after its lease
  bool tells_kind = false;      ///< a name used as two kinds is refused (wrong_kind)
  /// tokens go on growing after the store itself was restarted
  bool survives_store_restart = false;
  std::chrono::milliseconds min_lease{100};
  std::chrono::milliseconds max_lease{std::chrono::hours{24}};
  /// leases are rounded up to a multiple of this (0: not rounded)
  std::chrono::milliseconds lease_granularity{0};
  /// a lease may end this much early; part of the margin
  std::chrono::milliseconds expiry_granularity{0};
  /// Names the token space: fencing gates remember it and refuse tokens of another one. It was drawn
  /// when the store was first used, and is kept there; an address can give another one (?store=NAME).
  /// Empty here: the store had not said it when the client was opened. A lease always knows its own
  /// (lease::fence_pass()).
  std::string store_id;
  /// Sentences for people: what this store does not promise.
  std::vector<std::string> caveats;
};

}  // namespace sallyport
