#pragma once

#include "backend_api/requests.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace sallyport::runtime {

using backend_api::duration;
using backend_api::time_point;

/// Something that wants to be called at a time. Embedded in its owner; at most in one queue at a
/// time.
class timer {
 public:
  /// Whose timer it is: the engine has two sorts.
  enum class kind : std::uint8_t { party, waiter };

  explicit timer(kind whose) noexcept : whose_(whose) {}
  timer(const timer&) = delete;
  timer& operator=(const timer&) = delete;

  [[nodiscard]] bool armed() const noexcept { return slot_ != unarmed; }
  [[nodiscard]] time_point when() const noexcept { return when_; }
  [[nodiscard]] kind whose() const noexcept { return whose_; }

 protected:
  ~timer() = default;

 private:
  friend class timer_queue;
  static constexpr std::uint32_t unarmed = std::numeric_limits<std::uint32_t>::max();
  time_point when_{};
  std::uint32_t slot_ = unarmed;
  kind whose_;
};

/// An indexed binary heap of timers: arm, move and disarm in O(log n), without allocation but for
/// growth.
/// Thread safety: none. Does not own the timers: disarm before destroying one.
class timer_queue {
 public:
  /// From now on arm() allocates nothing as long as no more than so many timers are armed.
  void reserve(std::size_t timers);
  /// Arms or moves the timer; time_point::max() disarms it.
  void arm(timer& which, time_point when);
  void disarm(timer& which) noexcept;
  /// Takes out the earliest timer that is due, or nullptr.
  [[nodiscard]] timer* pop_due(time_point now) noexcept;
  /// The earliest time, or time_point::max().
  [[nodiscard]] time_point next() const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return heap_.size(); }

 private:
  void place(std::size_t slot, timer* which) noexcept;
  void sift_up(std::size_t slot) noexcept;
  void sift_down(std::size_t slot) noexcept;

  std::vector<timer*> heap_;
};

}  // namespace sallyport::runtime
