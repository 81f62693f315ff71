#pragma once

#include "sim/clock.hpp"

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace sallyport::sim {

/// What happened, as a number that two runs of one seed share, and as lines for people when
/// somebody reads them.
/// Thread safety: none.
class trace {
 public:
  static constexpr std::size_t max_lines = 4000;

  /// `keep`: remember the last max_lines lines. `print`: write each to stderr at once.
  trace(bool keep, bool print) noexcept : keep_(keep || print), print_(print) {}

  /// `what` is a literal with up to four '#', which stand for the numbers.
  void note(true_time when, std::string_view what, std::int64_t first = 0, std::int64_t second = 0,
            std::int64_t third = 0, std::int64_t fourth = 0);

  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
  [[nodiscard]] const std::deque<std::string>& lines() const noexcept { return lines_; }

 private:
  void mix(std::uint64_t number) noexcept {
    hash_ = (hash_ ^ number) * 0x100000001b3U;
    hash_ ^= hash_ >> 29U;
  }

  std::uint64_t hash_ = 0xcbf29ce484222325U;
  std::deque<std::string> lines_;
  bool keep_;
  bool print_;
};

}  // namespace sallyport::sim
