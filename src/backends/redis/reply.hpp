#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::backends::redis {

/// What a Redis server says to one command, in the terms of RESP2. A plain value: the same from the
/// wire, from a test and from the simulator.
struct reply {
  enum class kind : std::uint8_t { nil, integer, text, status, array, error };

  kind what = kind::nil;
  std::int64_t integer = 0;     ///< integer
  std::string text;             ///< text, status, error (without the leading '-')
  std::vector<reply> elements;  ///< array

  [[nodiscard]] bool is_nil() const noexcept { return what == kind::nil; }
  [[nodiscard]] bool is_integer() const noexcept { return what == kind::integer; }
  [[nodiscard]] bool is_text() const noexcept { return what == kind::text; }
  [[nodiscard]] bool is_array() const noexcept { return what == kind::array; }
  [[nodiscard]] bool is_error() const noexcept { return what == kind::error; }
  /// An error's first word: WRONGTYPE, NOSCRIPT, MOVED ...; empty when it is no error.
  [[nodiscard]] std::string_view error_word() const noexcept {
    if (!is_error()) return {};
    return std::string_view(text).substr(0, text.find(' '));
  }
  /// The server has become a replica, and can't do what it was asked.
  [[nodiscard]] bool is_from_replica() const noexcept {
    return error_word() == "READONLY" || error_word() == "MASTERDOWN";
  }

  friend bool operator==(const reply&, const reply&) = default;
};

}  // namespace sallyport::backends::redis
