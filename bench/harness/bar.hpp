#pragma once

#include "bench/harness/stats.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sallyport::bench {

/// What a figure should be. Use the functions below to make one.
struct bar {
  enum class kind : std::uint8_t { none, times_limit, below, at_most, exactly };

  kind what = kind::none;
  double value = 0;

  friend bool operator==(const bar&, const bar&) = default;
};

[[nodiscard]] constexpr bar times_limit(double factor) {
  return {.what = bar::kind::times_limit, .value = factor};
}
[[nodiscard]] constexpr bar below(double value) {
  return {.what = bar::kind::below, .value = value};
}
[[nodiscard]] constexpr bar at_most(double value) {
  return {.what = bar::kind::at_most, .value = value};
}
[[nodiscard]] constexpr bar exactly(double value) {
  return {.what = bar::kind::exactly, .value = value};
}

/// "<= 4 x limit", "< 1,024", "= 1"; empty for none.
[[nodiscard]] std::string to_string(const bar& wanted);

/// Whether a bar was met: the median decides, the rounds say how surely.
enum class verdict : std::uint8_t {
  none,           ///< there is no bar
  met,            ///< in every round
  mostly_met,     ///< by the median, not in every round
  mostly_missed,  ///< not by the median, but in some round
  missed          ///< in every round
};

[[nodiscard]] std::string_view to_string(verdict given) noexcept;
[[nodiscard]] constexpr bool is_met(verdict given) {
  return given == verdict::met || given == verdict::mostly_met;
}

/// `values` are the rounds, `to_limit` the ratios to the limit's rounds (empty: it has no limit).
[[nodiscard]] verdict judge(const bar& wanted, std::span<const double> values,
                            std::span<const double> to_limit);

}  // namespace sallyport::bench
