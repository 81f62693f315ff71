#pragma once

#include "tests/kit/temporary_folder.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace sallyport::kit {

struct clock_page;

/// The wall clock of other processes, to be moved while they run. Give a server's process
/// `environment()`; every look at its CLOCK_REALTIME, gettimeofday and time that begins after one
/// of the calls below has returned sees the change. Monotonic clocks go on as ever; waits until a
/// point of wall time (pthread_cond_timedwait, absolute timers) are the kernel's and not shifted.
/// Thread safety: environment() and now() from any thread, changes from one at a time.
class shifted_clock {
 public:
  using wall_time = std::chrono::time_point<std::chrono::system_clock, std::chrono::microseconds>;

  shifted_clock();
  shifted_clock(const shifted_clock&) = delete;
  shifted_clock& operator=(const shifted_clock&) = delete;
  ~shifted_clock();

  /// Moves the clock, forwards or backwards, from where it is: running or frozen.
  void step(std::chrono::microseconds by);
  /// The clock stands at `time`, which is 1970 or later.
  void freeze(wall_time time);
  /// The clock stands at what it says now.
  wall_time freeze();
  /// The real time again.
  void release();

  /// What a process reads now.
  [[nodiscard]] wall_time now() const;
  /// LD_PRELOAD and the path of the file.
  [[nodiscard]] std::vector<std::string> environment() const;

 private:
  void write(std::int64_t mode, std::int64_t microseconds);

  temporary_folder folder_{"clock"};
  clock_page* page_ = nullptr;
};

}  // namespace sallyport::kit
