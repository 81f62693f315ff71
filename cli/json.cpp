#include "cli/json.hpp"

#include <array>
#include <cstddef>
#include <cstdio>

namespace sallyport::cli {
namespace {

bool continues(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
}

/// How many bytes the UTF-8 character at `at` has; 0: there is none (overlong forms, surrogates and
/// what lies beyond U+10FFFF included).
std::size_t character_length(std::string_view text, std::size_t at) {
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

}  // namespace

std::string json_string(std::string_view text) {
  std::string made = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_length(text, at);
    const char each = text[at];
    if (length == 0) {
      made += "\\ufffd";
    } else if (each == '"' || each == '\\') {
      made += '\\';
      made += each;
    } else if (static_cast<unsigned char>(each) < 0x20 || each == 0x7F) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(each));
      made += escape.data();
    } else {
      made += text.substr(at, length);
    }
    at += length == 0 ? 1 : length;
  }
  return made + "\"";
}

}  // namespace sallyport::cli
