#pragma once

#include "base/mutex.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>

namespace sallyport::backend_api {

/// How a driving thread is interrupted when its call was finished by something the driven I/O does
/// not see (a timer, a cancel, another thread's turn). Implemented by backends, for example by
/// writing to an eventfd.
class drive_waker {
 public:
  drive_waker() = default;
  drive_waker(const drive_waker&) = delete;
  drive_waker& operator=(const drive_waker&) = delete;
  virtual ~drive_waker() = default;
  /// Called from any thread, with the ticket's mutex held: must not block and must not call back.
  virtual void wake() noexcept = 0;
};

/// One blocked call. The caller either waits here (wait) or lends its thread to the backend
/// (backend::drive) until somebody calls finish(). May be destroyed as soon as wait() or drive()
/// returned `finished`.
/// Thread safety: all members.
/// Invariant: once finished() is true it stays true.
class drive_ticket {
 public:
  drive_ticket() = default;
  drive_ticket(const drive_ticket&) = delete;
  drive_ticket& operator=(const drive_ticket&) = delete;

  /// Ends the call; wakes whoever waits or drives. Idempotent, while the ticket lives.
  void finish() noexcept;
  [[nodiscard]] bool finished() const noexcept;
  /// Blocks until finished.
  void wait();
  /// Blocks until finished, or for about this long: it may come back earlier. True: finished.
  bool wait_for(std::chrono::nanoseconds longest);

  /// For backends: from now on finish() also calls `waker`. False: already finished, nothing was
  /// registered.
  [[nodiscard]] bool begin_drive(drive_waker& waker);
  /// For backends: the waker is no longer used after this returned.
  void end_drive();

 private:
  // The bits of word_. A waiter sleeps on the word itself: with a condition variable the one who
  // wakes it holds the mutex that it needs next, and a hand-off between threads takes twice as
  // long.
  static constexpr std::uint32_t finished_bit = 1;
  static constexpr std::uint32_t waited_for_bit = 2;
  static constexpr std::uint32_t driven_bit = 4;

  std::atomic<std::uint32_t> word_{0};
  base::mutex mutex_;  // keeps a waker alive while it is called
  drive_waker* waker_ SALLYPORT_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace sallyport::backend_api
