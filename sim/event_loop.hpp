#pragma once

#include "sim/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace sallyport::sim {

/// What happens in the world, in the order of true time; what happens at one moment happens in the
/// order in which it was planned.
/// Thread safety: none.
class event_loop {
 public:
  [[nodiscard]] true_time now() const noexcept { return now_; }
  [[nodiscard]] std::uint64_t events_run() const noexcept { return events_run_; }

  /// A moment in the past is now.
  void at(true_time when, std::function<void()> what);
  void after(duration delay, std::function<void()> what) {
    at(now_ + delay.count(), std::move(what));
  }

  /// Runs the next event that is due by `limit`. False: there is none, and it is `limit` now.
  bool step(true_time limit);

 private:
  struct event {
    true_time when = 0;
    std::uint64_t sequence = 0;
    std::function<void()> what;
  };
  static bool later(const event& left, const event& right) noexcept {
    return left.when != right.when ? left.when > right.when : left.sequence > right.sequence;
  }

  std::vector<event> heap_;
  true_time now_ = 0;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t events_run_ = 0;
};

}  // namespace sallyport::sim
