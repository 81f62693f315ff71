#pragma once

#include "backend_api/requests.hpp"

#include <chrono>
#include <cstdint>
#include <limits>

namespace sallyport::sim {

using backend_api::duration;
using backend_api::time_point;

/// The time that nobody in the simulation can read: nanoseconds since it began.
using true_time = std::int64_t;

inline constexpr true_time never = std::numeric_limits<true_time>::max();

/// One machine's clock: a line over true time that may change its slope, jump and stop.
/// Thread safety: none. REQUIRES: true times are never smaller than in the last change.
class sim_clock {
 public:
  static constexpr std::int64_t million = 1'000'000;

  /// `drift`: parts per million by which the clock runs too fast.
  sim_clock(time_point start, std::int64_t drift) noexcept
      : local_(start), rate_(million + drift) {}

  [[nodiscard]] time_point at(true_time when) const noexcept {
    const auto elapsed = static_cast<__int128>(when - anchor_) * rate_ / million;
    return local_ + duration{static_cast<duration::rep>(elapsed)};
  }

  /// The first true moment at which the clock shows `local` or more; `never` while it stands still
  /// before it.
  [[nodiscard]] true_time when(time_point local) const noexcept {
    if (local <= local_) return anchor_;
    if (rate_ == 0 || local == time_point::max()) return never;
    const auto wanted = static_cast<__int128>((local - local_).count()) * million;
    return anchor_ + static_cast<true_time>((wanted + rate_ - 1) / rate_);
  }

  void set_drift(true_time now, std::int64_t drift) noexcept {
    move_anchor(now);
    rate_ = million + drift;
  }
  void jump(true_time now, duration by) noexcept {
    move_anchor(now);
    local_ += by;
  }
  void stop(true_time now) noexcept {
    move_anchor(now);
    rate_ = 0;
  }

 private:
  void move_anchor(true_time now) noexcept {
    local_ = at(now);
    anchor_ = now;
  }

  true_time anchor_ = 0;
  time_point local_;   // what it shows at anchor_
  std::int64_t rate_;  // millionths
};

/// The one clock of the machine on which all processes of a local store run. It is true time: a
/// rate that all share would change nothing.
inline sim_clock local_machine_clock() noexcept { return {time_point{std::chrono::hours{24}}, 0}; }

}  // namespace sallyport::sim
