#pragma once

#include "bench/harness/program.hpp"

#include <chrono>
#include <cstdint>

namespace sallyport::bench {

using stopwatch = std::chrono::steady_clock;

/// Makes the compiler believe that `value` is used.
template <class T>
inline void keep(T&& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

/// Calls `body` for about `time` and returns the mean time of a call in nanoseconds. The clock is
/// read once every few thousand calls, or sooner when they are slow.
template <class Body>
double nanoseconds_per_call(seconds time, Body&& body) {
  constexpr double slice_seconds = 0.002;
  constexpr std::uint64_t most_between_looks = 1U << 16U;
  std::uint64_t between_looks = 1;
  std::uint64_t calls = 0;
  const auto began = stopwatch::now();
  for (;;) {
    for (std::uint64_t i = 0; i < between_looks; ++i) body();
    calls += between_looks;
    const seconds passed = stopwatch::now() - began;
    if (passed >= time) return passed.count() * 1e9 / static_cast<double>(calls);
    const double each = passed.count() / static_cast<double>(calls);
    if (each * static_cast<double>(between_looks) * 2 < slice_seconds &&
        between_looks < most_between_looks) {
      between_looks *= 2;
    }
  }
}

}  // namespace sallyport::bench
