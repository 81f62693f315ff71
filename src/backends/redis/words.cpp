#include "backends/redis/words.hpp"

#include <chrono>

namespace sallyport::backends::redis {

using backend_api::holder_id;

std::array<char, 32> hex_of(const holder_id& id) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::array<char, 32> text;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  for (std::size_t i = 0; i < 16; ++i) {
    const auto shift = static_cast<unsigned>(60 - 4 * i);
    text[i] = digits[(id.high >> shift) & 0xfU];
    text[16 + i] = digits[(id.low >> shift) & 0xfU];
  }
  return text;
}

std::optional<holder_id> holder_of(std::string_view hex) {
  if (hex.size() != 32) return std::nullopt;
  holder_id id;
  const char* const middle = hex.data() + 16;
  const char* const end = hex.data() + 32;
  if (std::from_chars(hex.data(), middle, id.high, 16).ptr != middle) return std::nullopt;
  if (std::from_chars(middle, end, id.low, 16).ptr != end) return std::nullopt;
  return id;
}

std::int64_t in_ms(backend_api::duration span) {
  return std::chrono::ceil<std::chrono::milliseconds>(span).count();
}

std::string word(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  if (text == "-") return "%2D";  // a dash alone stands for no text
  std::string out;
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    if (byte <= 0x20 || byte == '%' || byte == 0x7f) {
      out += '%';
      out += digits[byte >> 4U];
      out += digits[byte & 0xfU];
    } else {
      out += each;
    }
  }
  return out.empty() ? "-" : out;
}

std::string text_of(std::string_view word) {
  if (word == "-") return {};
  std::string out;
  for (std::size_t i = 0; i < word.size(); ++i) {
    unsigned byte = 0;
    const bool coded = word[i] == '%' && i + 2 < word.size() &&
                       std::from_chars(word.data() + i + 1, word.data() + i + 3, byte, 16).ptr ==
                           word.data() + i + 3;
    out += coded ? static_cast<char>(byte) : word[i];
    if (coded) i += 2;
  }
  return out;
}

}  // namespace sallyport::backends::redis
