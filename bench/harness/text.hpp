#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sallyport::bench {

/// A number for people: three digits that count, thousands set apart, no exponent ("1,234",
/// "0.0421").
[[nodiscard]] std::string number(double value);

/// How many columns a UTF-8 text takes, one for each code point.
[[nodiscard]] std::size_t columns(std::string_view text);

}  // namespace sallyport::bench
