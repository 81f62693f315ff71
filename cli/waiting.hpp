#pragma once

#include "cli/run_options.hpp"
#include <sallyport/client.hpp>
#include <sallyport/lease.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>

namespace sallyport::cli {

class signals;

/// What came of wanting a lock.
struct waited {
  std::optional<lease> got;       ///< empty: somebody else has it, or a signal came
  std::optional<int> signal;      ///< the signal that ended the wait
  std::shared_ptr<void> keep;     ///< the lock behind the lease
  std::chrono::nanoseconds took;  ///< how long it took
};

/// Waits for the lock as `run` was asked to. A signal that cancels (signals::cancels) ends the wait
/// through a stop_token, so nothing stays in the queue. A name that is in use as a mutex serves -s
/// and -x too, and a shared one serves a plain run: the stronger lock is always safe. Throws
/// lock_error.
[[nodiscard]] waited wait_for_lock(const client& store, const run_options& options,
                                   const signals& source);

/// Tells who has the lock, for people who wait. Never throws.
void say_who_holds(const client& store, const std::string& name, std::string_view prefix) noexcept;

}  // namespace sallyport::cli
