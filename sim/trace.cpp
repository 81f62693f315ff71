#include "sim/trace.hpp"

#include <array>
#include <cstdio>

namespace sallyport::sim {

void trace::note(true_time when, std::string_view what, std::int64_t first, std::int64_t second,
                 std::int64_t third, std::int64_t fourth) {
  const std::array numbers{first, second, third, fourth};
  mix(static_cast<std::uint64_t>(when));
  mix(what.size());
  for (const std::int64_t number : numbers) mix(static_cast<std::uint64_t>(number));
  if (!keep_) return;

  std::array<char, 32> stamp{};
  std::snprintf(stamp.data(), stamp.size(), "%12.6f  ", static_cast<double>(when) / 1e9);
  std::string line = stamp.data();
  std::size_t next = 0;
  for (const char letter : what) {
    if (letter == '#' && next < numbers.size()) {
      line += std::to_string(numbers[next++]);
    } else {
      line += letter;
    }
  }
  if (print_) std::fprintf(stderr, "%s\n", line.c_str());
  lines_.push_back(std::move(line));
  if (lines_.size() > max_lines) lines_.pop_front();
}

}  // namespace sallyport::sim
