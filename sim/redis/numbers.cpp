#include "sim/redis/numbers.hpp"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

namespace sallyport::sim::redis {
namespace {

// All integers up to here are exact in a double, and shorter than 17 digits.
constexpr double exact_integers = 9007199254740992.0;  // 2^53

char lower(char byte) {
  return byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte - 'A' + 'a') : byte;
}

bool is_space(char byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

struct class_match {
  bool matched = false;
  std::size_t next = 0;  // after the closing bracket
};

// REQUIRES: pattern[at] is the byte after '['.
class_match match_class(std::string_view pattern, std::size_t at, char byte) {
  const bool negated = at < pattern.size() && pattern[at] == '^';
  if (negated) ++at;
  bool found = false;
  while (at < pattern.size() && pattern[at] != ']') {
    if (pattern[at] == '\\' && at + 1 < pattern.size()) {
      ++at;
      found = found || pattern[at] == byte;
    } else if (at + 2 < pattern.size() && pattern[at + 1] == '-') {
      const auto low = static_cast<unsigned char>(pattern[at]);
      const auto high = static_cast<unsigned char>(pattern[at + 2]);
      const auto value = static_cast<unsigned char>(byte);
      found =
          found || (low <= high ? low <= value && value <= high : high <= value && value <= low);
      at += 2;
    } else {
      found = found || pattern[at] == byte;
    }
    ++at;
  }
  return {found != negated, at < pattern.size() ? at + 1 : at};
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  const bool negative = text.starts_with('-');
  const auto digits = text.substr(negative ? 1 : 0);
  if (digits.empty() || digits.front() < '0' || digits.front() > '9') return std::nullopt;
  if (digits.front() == '0' && text.size() > 1) return std::nullopt;
  std::int64_t value = 0;
  const auto* const end = text.data() + text.size();
  const auto [stopped, failed] = std::from_chars(text.data(), end, value);
  if (failed != std::errc{} || stopped != end) return std::nullopt;
  return value;
}

std::optional<double> parse_double(std::string_view text) {
  // Most scores are integers; both ways round to the nearest.
  if (const auto integer = parse_integer(text)) return static_cast<double>(*integer);
  if (text.empty() || is_space(text.front())) return std::nullopt;
  const std::string terminated(text);
  char* stopped = nullptr;
  errno = 0;
  const double value = std::strtod(terminated.c_str(), &stopped);
  if (stopped != terminated.c_str() + terminated.size() || std::isnan(value)) return std::nullopt;
  if (errno == ERANGE && (std::isinf(value) || value == 0)) return std::nullopt;
  return value;
}

std::optional<score_limit> parse_score_limit(std::string_view text) {
  const bool exclusive = text.starts_with('(');
  const std::string terminated(exclusive ? text.substr(1) : text);
  char* stopped = nullptr;
  const double value = std::strtod(terminated.c_str(), &stopped);
  // A zero byte ends the text, whatever follows it.
  if (*stopped != '\0' || std::isnan(value)) return std::nullopt;
  return score_limit{value, exclusive};
}

std::string_view format_double(double number, number_buffer& buffer) {
  if (std::abs(number) <= exact_integers && number == std::trunc(number) &&
      !(number == 0 && std::signbit(number))) {
    const auto [end, failed] = std::to_chars(buffer.data(), buffer.data() + buffer.size(),
                                             static_cast<std::int64_t>(number));
    (void)failed;  // the buffer is large enough
    return {buffer.data(), static_cast<std::size_t>(end - buffer.data())};
  }
  const int length = std::snprintf(buffer.data(), buffer.size(), "%.17g", number);
  return {buffer.data(), static_cast<std::size_t>(length)};
}

std::string format_double(double number) {
  number_buffer buffer{};
  return std::string(format_double(number, buffer));
}

std::int64_t truncate(double number) {
  constexpr double beyond = 9223372036854775808.0;  // 2^63
  if (!(number >= -beyond && number < beyond)) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(number);
}

bool is_word(std::string_view text, std::string_view lower_word) {
  if (text.size() != lower_word.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (lower(text[i]) != lower_word[i]) return false;
  }
  return true;
}

bool matches_glob(std::string_view pattern, std::string_view text) {
  std::size_t at = 0;
  while (at < pattern.size()) {
    if (pattern[at] == '*') {
      const auto rest = pattern.substr(at + 1);
      for (std::size_t skipped = 0; skipped <= text.size(); ++skipped) {
        if (matches_glob(rest, text.substr(skipped))) return true;
      }
      return false;
    }
    if (text.empty()) return false;
    if (pattern[at] == '[') {
      const auto matched = match_class(pattern, at + 1, text.front());
      if (!matched.matched) return false;
      at = matched.next;
    } else {
      if (pattern[at] == '\\' && at + 1 < pattern.size()) {
        ++at;
        if (pattern[at] != text.front()) return false;
      } else if (pattern[at] != '?' && pattern[at] != text.front()) {
        return false;
      }
      ++at;
    }
    text.remove_prefix(1);
  }
  return text.empty();
}

}  // namespace sallyport::sim::redis
