#include "cli/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

namespace sallyport::cli {
namespace {

bool continues(std::string_view text, std::size_t at) noexcept {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
}

std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string two_units(long long larger, const char* larger_unit, long long smaller,
                      const char* smaller_unit) {
  std::string text = std::to_string(larger) + " " + larger_unit;
  if (smaller != 0) text += " " + std::to_string(smaller) + " " + smaller_unit;
  return text;
}

}  // namespace

std::size_t character_length(std::string_view text, std::size_t at) noexcept {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return 1;
  if (!continues(text, at + 1)) return 0;
  const auto second = static_cast<unsigned char>(text[at + 1]);
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (!continues(text, at + 2)) return 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool overlong = lead == 0xE0 && second < 0xA0;
    const bool surrogate = lead == 0xED && second >= 0xA0;
    return overlong || surrogate ? 0 : 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4 && continues(text, at + 3)) {
    const bool overlong = lead == 0xF0 && second < 0x90;
    const bool beyond = lead == 0xF4 && second >= 0x90;
    return overlong || beyond ? 0 : 4;
  }
  return 0;
}

std::string printable(std::string_view text) {
  std::string made;
  made.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_length(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    // U+0080 to U+009F are control characters too.
    const bool control =
        byte < 0x20 || byte == 0x7F ||
        (length == 2 && byte == 0xC2 && static_cast<unsigned char>(text[at + 1]) < 0xA0);
    if (length == 0) {
      made += '?';
    } else if (control) {
      made += ' ';
    } else {
      made += text.substr(at, length);
    }
    at += std::max<std::size_t>(length, 1);
  }
  return made;
}

std::string quoted(std::string_view text) { return "'" + printable(text) + "'"; }

std::size_t columns(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char each) {
    return (static_cast<unsigned char>(each) & 0xC0U) != 0x80U;
  }));
}

void table::add(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::string table::text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
  }
  std::string made;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      line.append(widths[i] - columns(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    made += line + "\n";
  }
  return made;
}

std::optional<std::string_view> nearest(std::string_view given,
                                        const std::vector<std::string_view>& known) {
  std::optional<std::string_view> best;
  std::size_t best_distance = std::max<std::size_t>(2, given.size() / 3) + 1;
  for (const std::string_view each : known) {
    const std::size_t distance = edit_distance(given, each);
    // A word that shares no letter with what was typed is no suggestion.
    if (distance < best_distance && distance < std::max(given.size(), each.size())) {
      best_distance = distance;
      best = each;
    }
  }
  return best;
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  // from_chars would take "inf", "nan", "-1" and "1e9" too.
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view unit = text.substr(digits);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, value);
  if (digits == 0 || error != std::errc{} || end != text.data() + digits) return std::nullopt;

  static constexpr std::array<std::pair<std::string_view, double>, 7> units{{
      {"", 1e3},
      {"ms", 1},
      {"s", 1e3},
      {"m", 60e3},
      {"min", 60e3},
      {"h", 3600e3},
      {"d", 24 * 3600e3},
  }};
  const auto* const known = std::find_if(units.begin(), units.end(),
                                         [&](const auto& each) { return each.first == unit; });
  if (known == units.end()) return std::nullopt;
  constexpr double longest_ms = 3e12;  // a century: as nanoseconds it must not overflow
  const double milliseconds = value * known->second;
  if (!(milliseconds <= longest_ms)) return std::nullopt;
  // Upward: "0.4 ms" is a short wait, not none.
  return std::chrono::milliseconds{static_cast<long long>(std::ceil(milliseconds - 1e-6))};
}

std::string to_text(std::chrono::milliseconds duration) {
  const long long ms = std::max<long long>(duration.count(), 0);
  if (ms < 1000) return std::to_string(ms) + " ms";
  if (ms < 60'000) {
    std::array<char, 32> buffer{};
    std::snprintf(buffer.data(), buffer.size(), "%lld.%lld s", ms / 1000, ms % 1000 / 100);
    return buffer.data();
  }
  const long long seconds = ms / 1000;
  if (seconds < 3600) return two_units(seconds / 60, "min", seconds % 60, "s");
  if (seconds < 24 * 3600LL) return two_units(seconds / 3600, "h", seconds % 3600 / 60, "min");
  return two_units(seconds / (24 * 3600LL), "d", seconds % (24 * 3600LL) / 3600, "h");
}

std::optional<unsigned long long> parse_number(std::string_view text, unsigned long long limit) {
  unsigned long long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || value > limit) {
    return std::nullopt;
  }
  return value;
}

}  // namespace sallyport::cli
