#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sallyport::sim::redis {

/// An integer as Redis reads one from a command: no spaces, no plus, no leading zeros, 64 bits.
std::optional<std::int64_t> parse_integer(std::string_view text);

/// A score as Redis reads one from ZADD: what strtod takes, all of it, without leading spaces,
/// overflow and NaN.
std::optional<double> parse_double(std::string_view text);

/// One end of a range of scores: "5", "(5", "-inf". An empty text is 0, as in Redis.
struct score_limit {
  double value = 0;
  bool exclusive = false;
};
std::optional<score_limit> parse_score_limit(std::string_view text);

/// Enough for every number that `format_double` writes.
using number_buffer = std::array<char, 40>;

/// A number as Redis 7.0 writes it, in replies and where a script passes one to a command: 17
/// significant digits, "inf", "-inf". The view points into `buffer`.
std::string_view format_double(double number, number_buffer& buffer);
std::string format_double(double number);

/// What the processor's conversion makes of a number; out of range and NaN is the smallest integer.
std::int64_t truncate(double number);

/// Whether two words are equal but for the case of ASCII letters. REQUIRES: `lower` is lower-case.
bool is_word(std::string_view text, std::string_view lower);

/// Redis' glob: * ? [a-z] [^a] and a backslash that takes the next byte as it is.
bool matches_glob(std::string_view pattern, std::string_view text);

}  // namespace sallyport::sim::redis
