#pragma once

#include "backend_api/holder_id.hpp"
#include "backend_api/requests.hpp"

#include <functional>

namespace sallyport::runtime {

using backend_api::duration;
using backend_api::time_point;

/// The outside world as the engine sees it: a clock, somebody who wakes it, somebody who tells
/// users, and chance. The product's environment has threads; the simulator's has none.
/// Thread safety: every member may be called from any thread. now(), tell() and new_holder_id() are
/// also called with the engine's mutex held: they must not call back.
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
  /// Queues user code, to run later, in order, on a thread that the engine does not depend on.
  virtual void tell(std::function<void()> news) = 0;
  /// Called under the engine's mutex only.
  [[nodiscard]] virtual backend_api::holder_id new_holder_id() = 0;
};

}  // namespace sallyport::runtime
