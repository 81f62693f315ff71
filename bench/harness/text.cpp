#include "bench/harness/text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace sallyport::bench {

std::string number(double value) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  const double size = std::floor(std::log10(std::abs(value)));
  const int decimals = std::clamp(static_cast<int>(2 - size), 0, 9);
  std::array<char, 400> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, value);
  std::string digits(buffer.data(), static_cast<std::size_t>(std::max(length, 0)));
  if (digits.find('.') != std::string::npos) {
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.back() == '.') digits.pop_back();
  }
  const std::size_t first = digits.front() == '-' ? 1 : 0;
  const std::size_t point = std::min(digits.find('.'), digits.size());
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > first && i < point && (point - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char each) {
    return (static_cast<unsigned char>(each) & 0xC0U) != 0x80U;
  }));
}

}  // namespace sallyport::bench
