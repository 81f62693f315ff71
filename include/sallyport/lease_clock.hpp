#pragma once

#include <chrono>

namespace sallyport {

/// The clock by which leases are counted: CLOCK_BOOTTIME. It never steps and, unlike
/// std::chrono::steady_clock on Linux, goes on while the machine sleeps. Meets Cpp17TrivialClock.
struct lease_clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<lease_clock>;
  static constexpr bool is_steady = true;

  static time_point now() noexcept;
};

}  // namespace sallyport
