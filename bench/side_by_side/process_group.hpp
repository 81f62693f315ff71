#pragma once

#include "bench/harness/program.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace sallyport::bench {

inline constexpr int group_size = 8;

/// What the processes of a group share: the lock under test guards `holder`.
struct shared_board {
  struct baton {
    int released_by = -1;
    std::int64_t released_at = 0;  ///< nanoseconds, the same clock in all processes
    std::uint64_t turns = 0;
    std::uint64_t changes = 0;  ///< of holder
  };
  struct seat {
    std::uint64_t turns = 0;
    std::uint64_t contended_turns = 0;  ///< while all processes were at it
    std::size_t samples = 0;
    std::int64_t latency[std::size_t{1} << 15U];
  };

  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::atomic<bool> stop{false};
  std::atomic<bool> failed{false};
  std::atomic<int> at_it{0};  ///< processes that had a turn
  baton holder;
  seat seats[group_size];
};

/// One process's way to the lock under test.
class process_seat {
 public:
  process_seat() = default;
  process_seat(const process_seat&) = delete;
  process_seat& operator=(const process_seat&) = delete;
  virtual ~process_seat() = default;
  virtual void acquire() = 0;
  virtual void release() = 0;
};

/// What a group of processes did.
struct group_figures {
  double handoff_p50_us = 0;
  double handoff_p99_us = 0;
  double us_per_change = 0;  ///< wall time per change of holder
  /// Of the turns while all were at it: at its beginning and end one may be alone, and alone it is
  /// ten times as fast.
  double most_to_fewest = 0;
};

/// Forks `group_size` processes that pass one lock on for `time`, each holding it for `hold`. A
/// sample is the time from just before another process's release until our acquire returned; it
/// counts when we were waiting already. Throws when two were inside at once, or a process failed.
/// REQUIRES: this process has one thread.
group_figures measure_group(seconds time, seconds hold,
                            const std::function<std::unique_ptr<process_seat>(int)>& make_seat);

}  // namespace sallyport::bench
