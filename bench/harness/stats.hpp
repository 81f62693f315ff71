#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sallyport::bench {

/// What a row shows of its rounds.
struct summary {
  double median = 0;
  double smallest = 0;
  double largest = 0;

  friend bool operator==(const summary&, const summary&) = default;
};

/// REQUIRES: at least one value. An even number of values has the mean of the middle two as median.
[[nodiscard]] summary summarise(std::span<const double> values);

/// `above[i] / below[i]`: ratios are taken round by round, because noise that lasts for seconds
/// hits both programs of a round alike. REQUIRES: as many of one as of the other, none of `below`
/// zero.
[[nodiscard]] std::vector<double> ratios(std::span<const double> above,
                                         std::span<const double> below);

/// The smallest value that at least `share` of all values do not exceed (nearest rank).
/// REQUIRES: at least one value, 0 < share <= 1. Reorders `values`.
[[nodiscard]] double percentile(std::span<std::int64_t> values, double share);

/// Keeps an even selection of a stream of values in bounded memory: all of them, or else every
/// second, every fourth, ...
/// Invariants: (1) never more than the capacity is kept. (2) A value's chance to be kept depends on
/// its place in the stream only. Thread safety: none.
class sampler {
 public:
  /// REQUIRES: capacity >= 2.
  explicit sampler(std::size_t capacity);

  void add(std::int64_t value) {
    if (seen_++ % stride_ != 0) return;
    if (kept_.size() == capacity_) thin_out();
    if ((seen_ - 1) % stride_ == 0) kept_.push_back(value);
  }

  [[nodiscard]] const std::vector<std::int64_t>& kept() const noexcept { return kept_; }
  [[nodiscard]] std::uint64_t stride() const noexcept { return stride_; }

 private:
  void thin_out();

  const std::size_t capacity_;
  std::uint64_t seen_ = 0;
  std::uint64_t stride_ = 1;
  std::vector<std::int64_t> kept_;
};

}  // namespace sallyport::bench
