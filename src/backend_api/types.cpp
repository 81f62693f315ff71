#include <sallyport/error.hpp>
#include <sallyport/types.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace sallyport {
namespace {

/// One character and how many bytes it took.
struct decoded {
  std::uint32_t code_point = 0;
  std::size_t bytes = 0;
};

/// What a first byte promises: how many bytes follow, its own bits, and the least code point that
/// needs that many bytes.
struct lead {
  std::size_t followers = 0;
  std::uint32_t bits = 0;
  std::uint32_t least = 0;
};

std::optional<lead> read_lead(std::uint8_t byte) {
  if (byte < 0x80) return lead{0, byte, 0};
  if (byte < 0xC0) return std::nullopt;
  if (byte < 0xE0) return lead{1, byte & 0x1FU, 0x80};
  if (byte < 0xF0) return lead{2, byte & 0x0FU, 0x800};
  if (byte < 0xF8) return lead{3, byte & 0x07U, 0x1'0000};
  return std::nullopt;
}

/// The first character of `text`, which is not empty; nullopt unless it is well-formed UTF-8 (RFC
/// 3629). Two spellings of one character would be two names here and one name in a store that
/// repairs them.
std::optional<decoded> first_character(std::string_view text) {
  const std::optional<lead> start = read_lead(static_cast<std::uint8_t>(text[0]));
  if (!start || text.size() <= start->followers) return std::nullopt;
  std::uint32_t code_point = start->bits;
  for (const char follower : text.substr(1, start->followers)) {
    const auto byte = static_cast<std::uint8_t>(follower);
    if ((byte & 0xC0U) != 0x80) return std::nullopt;
    code_point = code_point << 6U | (byte & 0x3FU);
  }
  const bool overlong = code_point < start->least;
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  if (overlong || surrogate || code_point > 0x10'FFFF) return std::nullopt;
  return decoded{code_point, start->followers + 1};
}

/// C0, DEL and C1.
bool is_control(std::uint32_t code_point) {
  return code_point < 0x20 || (code_point >= 0x7F && code_point <= 0x9F);
}

/// What is wrong with the name; empty when nothing is. Never quotes it: it may hold what would
/// garble a terminal.
std::string objection(std::string_view text) {
  if (text.empty()) return "the name is empty";
  if (text.size() > lock_name::max_bytes) {
    return "the name has " + std::to_string(text.size()) + " bytes, more than " +
           std::to_string(lock_name::max_bytes);
  }
  for (std::size_t position = 0; position < text.size();) {
    const std::optional<decoded> next = first_character(text.substr(position));
    if (!next) return "the name is not UTF-8 at byte " + std::to_string(position);
    if (is_control(next->code_point)) {
      return "the name has a control character at byte " + std::to_string(position);
    }
    position += next->bytes;
  }
  return {};
}

}  // namespace

lock_name::lock_name(std::string_view text) {
  const std::string why = objection(text);
  if (!why.empty()) throw lock_error{errc::bad_name, why};
  text_ = text;
}

bool lock_name::acceptable(std::string_view text, std::string* why) {
  std::string found = objection(text);
  const bool good = found.empty();
  if (!good && why != nullptr) *why = std::move(found);
  return good;
}

std::string_view to_string(lock_kind kind) noexcept {
  switch (kind) {
    case lock_kind::mutex:
      return "mutex";
    case lock_kind::shared_mutex:
      return "shared_mutex";
    case lock_kind::semaphore:
      return "semaphore";
    case lock_kind::election:
      return "election";
  }
  return "unknown";
}

std::string_view to_string(lock_mode mode) noexcept {
  switch (mode) {
    case lock_mode::exclusive:
      return "exclusive";
    case lock_mode::shared:
      return "shared";
  }
  return "unknown";
}

}  // namespace sallyport
