#pragma once

#include "core/timing.hpp"
#include <sallyport/types.hpp>

#include <cstdint>

namespace sallyport::runtime {

/// What is asked for; fixed for all turns of one lock object.
struct lock_spec {
  lock_name name;
  lock_kind kind = lock_kind::mutex;
  lock_mode mode = lock_mode::exclusive;
  std::uint32_t permits = 1;  ///< semaphore: N
  /// passes inside the process; 1 for elections, whose entry carries a value per turn
  std::uint32_t local_turns = 1;
  core::duration local_turn_time{};
  core::timing times;

  /// Whether exclusive callers of this process queue in a lane and are one contender in the store.
  /// With a single turn each caller stands in the store's queue itself, so that FIFO holds over all
  /// threads of all processes; so do readers, permits, and candidates, whose entries carry a value.
  [[nodiscard]] bool queues_locally() const noexcept {
    return mode == lock_mode::exclusive && kind != lock_kind::semaphore && local_turns > 1;
  }
};

}  // namespace sallyport::runtime
