#pragma once

#include "cli/run_options.hpp"
#include <sallyport/client.hpp>
#include <sallyport/error.hpp>
#include <sallyport/lease.hpp>
#include <sallyport/lease_clock.hpp>
#include <sallyport/options.hpp>

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

/// The way to the lock, as `run` was asked to go it: opens the store, then waits for the lock. One
/// deadline, counted from the construction, covers both. A store that is away (errc::unavailable,
/// outcome_unknown) is asked again for store_patience(options), and people are told so once. A signal
/// that cancels (signals::cancels) ends either wait; nothing stays in the queue.
/// Thread safety: none.
class waiting_run {
 public:
  /// Keeps references to both.
  waiting_run(const run_options& options, const signals& source);

  /// Empty: a signal came. Throws lock_error.
  [[nodiscard]] std::optional<client> open(client_options how);
  /// The signal that ended open().
  [[nodiscard]] std::optional<int> signal() const noexcept { return signal_; }
  /// A name that is in use as a mutex serves -s and -x too, and a shared one serves a plain run: the
  /// stronger lock is always safe. Throws lock_error.
  [[nodiscard]] waited acquire(const client& store);

 private:
  /// Whether to ask again after this failure. Tells people once.
  [[nodiscard]] bool worth_waiting(const lock_error& why);
  /// False: a signal came.
  [[nodiscard]] bool pause(std::chrono::milliseconds span);

  const run_options& options_;
  const signals& source_;
  const lease_clock::time_point began_;
  const lease_clock::time_point until_;
  const lease_clock::time_point store_until_;
  bool told_ = false;
  std::optional<int> signal_;
};

/// Whether somebody reads what is said while all goes well: with -v, or at a terminal without -q.
[[nodiscard]] bool somebody_reads(const run_options& options);

/// Tells who has the lock, for people who wait. Never throws.
void say_who_holds(const client& store, const std::string& name, std::string_view prefix,
                   std::string_view suffix = {}) noexcept;

}  // namespace sallyport::cli
