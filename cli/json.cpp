#include "cli/json.hpp"

#include "cli/text.hpp"

#include <array>
#include <cstddef>
#include <cstdio>

namespace sallyport::cli {

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
