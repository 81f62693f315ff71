#include "bench/side_by_side/turns.hpp"

#include "bench/harness/stats.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <stdexcept>
#include <string>
#include <system_error>

namespace sallyport::bench {
namespace {

/// Takes the number off the front of `line`, and the space behind it unless the line ends there.
template <class Number>
bool take(std::string_view& line, Number& into) {
  const char* const end = line.data() + line.size();
  const auto [rest, wrong] = std::from_chars(line.data(), end, into);
  if (wrong != std::errc{} || (rest != end && *rest != ' ')) return false;
  line.remove_prefix(static_cast<std::size_t>(rest - line.data()));
  if (!line.empty()) line.remove_prefix(1);
  return true;
}

turn parse_turn(std::string_view line) {
  const std::string whole{line};
  turn made;
  const bool good = take(line, made.seat) && take(line, made.wanted_at) &&
                    take(line, made.entered_at) && take(line, made.released_at) &&
                    take(line, made.gave_up) && line.empty();
  if (!good) throw std::runtime_error("not the record of a turn: '" + whole + "'");
  if (made.wanted_at > made.entered_at || made.entered_at > made.released_at) {
    throw std::runtime_error("a turn runs backwards: '" + whole + "'");
  }
  return made;
}

double microseconds_at(std::vector<std::int64_t>& values, double share) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  return percentile(values, share) / 1e3;
}

}  // namespace

std::vector<turn> parse_turns(std::string_view text) {
  std::vector<turn> all;
  while (!text.empty()) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) throw std::runtime_error("the last turn is cut off");
    all.push_back(parse_turn(text.substr(0, end)));
    text.remove_prefix(end + 1);
  }
  return all;
}

turn_figures figures_of(std::vector<turn> turns, const turn_window& counted, int seats) {
  std::sort(turns.begin(), turns.end(),
            [](const turn& a, const turn& b) { return a.entered_at < b.entered_at; });
  std::vector<std::uint64_t> turns_of(static_cast<std::size_t>(seats));
  std::vector<std::int64_t> handoffs;
  std::int64_t longest_wait = 0;
  std::uint64_t changes = 0;
  std::uint64_t entered = 0;
  turn_figures made;
  const turn* before = nullptr;
  for (const turn& each : turns) {
    if (each.seat < 0 || each.seat >= seats) throw std::runtime_error("a turn of nobody's");
    if (before != nullptr && each.entered_at < before->released_at) {
      throw std::runtime_error("two were inside at once");
    }
    const turn* const last = before;
    before = &each;
    if (each.wanted_at < counted.end) {
      longest_wait =
          std::max(longest_wait, std::min(each.entered_at, counted.end) - each.wanted_at);
      made.gave_up += static_cast<double>(each.gave_up);
    }
    if (each.entered_at < counted.begin || each.entered_at >= counted.end) continue;
    ++entered;
    ++turns_of[static_cast<std::size_t>(each.seat)];
    if (last == nullptr || last->seat == each.seat) continue;
    ++changes;
    if (each.wanted_at < last->released_at) handoffs.push_back(each.entered_at - last->released_at);
  }
  const double passed = static_cast<double>(counted.end - counted.begin) / 1e9;
  const auto [fewest, most] = std::minmax_element(turns_of.begin(), turns_of.end());
  made.handoff_p50_us = microseconds_at(handoffs, 0.5);
  made.handoff_p99_us = microseconds_at(handoffs, 0.99);
  made.handoff_longest_us = microseconds_at(handoffs, 1);
  made.changes_per_second = static_cast<double>(changes) / passed;
  made.turns_per_second = static_cast<double>(entered) / passed;
  made.most_to_fewest =
      static_cast<double>(*most) / static_cast<double>(std::max<std::uint64_t>(*fewest, 1));
  made.without_a_turn =
      static_cast<double>(std::count(turns_of.begin(), turns_of.end(), std::uint64_t{0}));
  made.longest_wait_ms = static_cast<double>(longest_wait) / 1e6;
  return made;
}

lone_figures lone_figures_of(const std::vector<turn>& turns, const turn_window& counted) {
  std::vector<std::int64_t> pairs;
  std::vector<std::int64_t> acquires;
  const turn* before = nullptr;
  for (const turn& each : turns) {
    if (each.wanted_at < counted.begin || each.wanted_at >= counted.end) continue;
    acquires.push_back(each.entered_at - each.wanted_at);
    if (before != nullptr) pairs.push_back(each.wanted_at - before->wanted_at);
    before = &each;
  }
  if (pairs.empty()) throw std::runtime_error("too few turns to measure");
  return {.pair_p50_us = microseconds_at(pairs, 0.5),
          .acquire_p50_us = microseconds_at(acquires, 0.5)};
}

double microseconds_per_pair(const std::vector<turn>& turns) {
  if (turns.size() < 2) throw std::runtime_error("too few turns to measure");
  return static_cast<double>(turns.back().wanted_at - turns.front().wanted_at) / 1e3 /
         static_cast<double>(turns.size() - 1);
}

}  // namespace sallyport::bench
