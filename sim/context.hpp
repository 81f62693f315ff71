#pragma once

#include "base/random.hpp"
#include "sim/counters.hpp"
#include "sim/event_loop.hpp"
#include "sim/options.hpp"
#include "sim/trace.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace sallyport::sim {

/// Which promise was broken, and how.
struct violation {
  std::string check;
  std::string what;
};

/// What all parts of one simulated world share: its time, its chance, its plan, and where they
/// report.
/// Thread safety: none.
struct context {
  context(std::uint64_t seed, trace lines)
      : random(seed), plan(draw_options(seed, random)), log(std::move(lines)) {}

  event_loop loop;
  base::random random;
  const options plan;
  counters count;
  trace log;
  bool healed = false;  ///< no more faults; whatever waits must get through
  true_time healed_at = never;
  std::optional<violation> failed;

  /// Keeps the first violation; the world stops after the present event.
  void fail(std::string_view check, std::string what) {
    if (!failed) failed = violation{std::string{check}, std::move(what)};
  }
  void note(std::string_view what, std::int64_t first = 0, std::int64_t second = 0,
            std::int64_t third = 0, std::int64_t fourth = 0) {
    log.note(loop.now(), what, first, second, third, fourth);
  }
  /// Whether a fault of messages strikes now.
  [[nodiscard]] bool strikes(fault which) {
    const double rate = plan.rate(which);
    return !healed && rate > 0 && random.chance(rate);
  }
  [[nodiscard]] std::size_t index_of(const lock_name& name) const noexcept {
    return static_cast<std::size_t>(name.text().back() - '0');
  }
};

}  // namespace sallyport::sim
