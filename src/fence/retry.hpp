#pragma once

#include <sallyport/lease_clock.hpp>

#include <cstdint>
#include <optional>

namespace sallyport::fence {

/// When to try again after losing against others. Pure: it reads no clock, draws nothing and never
/// waits.
/// Thread safety: none. Invariant: at most `most_attempts` attempts, none of which begins after
/// `deadline`, but for the first.
class retry {
 public:
  struct limits {
    lease_clock::time_point deadline{};
    std::uint32_t most_attempts = 1;  ///< REQUIRES: at least 1
    lease_clock::duration first_pause{};
    lease_clock::duration longest_pause{};
  };

  explicit retry(const limits& within);

  /// The attempt that began last has failed. How long to wait before the next; empty: give up. The
  /// pause is drawn evenly from a span that doubles with every failure: contenders that met once are
  /// scattered, where a fixed pause would let them meet again. REQUIRES: `draw` is in [0, 1).
  [[nodiscard]] std::optional<lease_clock::duration> after_failure(lease_clock::time_point now,
                                                                   double draw);

 private:
  const limits within_;
  std::uint32_t failures_ = 0;
  lease_clock::duration span_;
};

}  // namespace sallyport::fence
