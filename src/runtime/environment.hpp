#pragma once

#include "backend_api/holder_id.hpp"
#include "backend_api/requests.hpp"
#include "runtime/lost_turns.hpp"

#include <functional>

namespace sallyport::runtime {

using backend_api::duration;
using backend_api::time_point;

/// The outside world as the engine sees it: a clock, somebody who wakes it, somebody who tells
/// users, and chance. The product's environment has threads; the simulator's has none.
/// Thread safety: every member may be called from any thread. now(), tell(), tell_observer() and
/// new_holder_id() are also called with the engine's mutex held: they must not call back.
class environment {
 public:
  environment() = default;
  environment(const environment&) = delete;
  environment& operator=(const environment&) = delete;
  virtual ~environment() = default;

  /// The lease clock.
  [[nodiscard]] virtual time_point now() const = 0;
  /// engine::run_due() must be called at this time at the latest; replaces a later wish, never an
  /// earlier one.
  virtual void wake_at(time_point when) = 0;
  /// Queues user code, to run later, in order, on a thread that the engine does not depend on. When
  /// too much waits already it is dropped: for news that are read again anyway.
  virtual void tell(std::function<void()> news) = 0;
  /// The same for an event of the observer's, in the same order. One that is dropped is counted, and
  /// the observer is told how many it missed.
  virtual void tell_observer(std::function<void()> event) = 0;
  /// Fires the lost() tokens of these turns, on a thread that neither the engine nor any news hold
  /// up. None is dropped, whatever waits. Needs no memory.
  virtual void tell_lost(lost_turns lost) noexcept = 0;
  /// Called under the engine's mutex only.
  [[nodiscard]] virtual backend_api::holder_id new_holder_id() = 0;
};

}  // namespace sallyport::runtime
