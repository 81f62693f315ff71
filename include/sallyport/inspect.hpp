#pragma once

#include <sallyport/types.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace sallyport {

/// Who holds a grant. Never says the holder's id: that would be a capability to release the lock.
struct holder_info {
  fencing_token token;  ///< for a semaphore: the number that `break_lock` compares; no fence
  lock_mode mode = lock_mode::exclusive;
  std::string host;
  std::int64_t pid = 0;
  std::string label;
  std::string value;  ///< election: what the leader says
  std::chrono::milliseconds held_for{0};
  std::chrono::milliseconds remaining{0};  ///< until the store would take it back without renewal
  std::uint32_t local_waiters = 0;  ///< callers of the holder's own process that wait behind it
  bool claimed = true;              ///< false: handed over and not yet confirmed by the holder
};

/// Who stands in the queue, in order.
struct waiter_info {
  lock_mode mode = lock_mode::exclusive;
  std::string host;
  std::int64_t pid = 0;
  std::string label;
  std::chrono::milliseconds waited{0};
  std::uint32_t local_waiters = 0;
};

/// One lock as the store sees it.
struct lock_info {
  std::string name;
  lock_kind kind = lock_kind::mutex;
  std::uint32_t permits = 1;  ///< semaphore: N
  std::vector<holder_info> holders;
  std::vector<waiter_info> waiters;
  /// Above zero: a broken grant's tombstone keeps everybody out for this long.
  std::chrono::milliseconds closed_for{0};
};

}  // namespace sallyport
