#pragma once

#include "base/mutex.hpp"
#include "runtime/environment.hpp"

#include <functional>
#include <system_error>
#include <thread>

namespace sallyport::runtime {

/// The one thread that serves timers: renewals, deadlines, heartbeats of all leases of a client. It
/// sleeps on a timerfd of CLOCK_BOOTTIME, so a deadline that passed while the machine slept is
/// served at once after it wakes. It also minds the descriptor of a backend that has no thread of its
/// own. It runs no user code.
/// Thread safety: all members; stop() by the owner, once.
class watchdog {
 public:
  /// `work` is called on the watchdog's thread whenever the time given to wake_at has come.
  explicit watchdog(std::function<void()> work);
  /// Calls stop().
  ~watchdog();
  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;

  /// Also calls `attend` whenever the descriptor is readable. REQUIRES: called at most once, before
  /// the first wake_at(); the descriptor outlives stop().
  void listen(int descriptor, std::function<void()> attend);
  /// Sees to it that the thread runs. An error: the process may have no more threads; the next call
  /// tries again.
  [[nodiscard]] std::error_code start() noexcept;
  /// Calls start(), and throws std::system_error where that fails.
  void wake_at(time_point when);
  /// Ends the thread; no work runs after this returned.
  void stop();

 private:
  void run();
  [[nodiscard]] std::error_code start_held() noexcept SALLYPORT_REQUIRES(mutex_);

  const std::function<void()> work_;
  const int timer_fd_;
  const int stop_fd_;
  // Constant once the thread runs.
  int attention_fd_ = -1;
  std::function<void()> attend_;
  base::mutex mutex_;
  time_point armed_for_ SALLYPORT_GUARDED_BY(mutex_) = time_point::max();
  std::thread thread_ SALLYPORT_GUARDED_BY(mutex_);
  bool stopped_ SALLYPORT_GUARDED_BY(mutex_) = false;
};

}  // namespace sallyport::runtime
