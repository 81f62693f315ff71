#pragma once

#include "backend_api/holder_id.hpp"
#include "backend_api/requests.hpp"

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// How the records that we keep in a Redis server are written: words with a blank between them.
namespace sallyport::backends::redis {

/// 32 hexadecimal digits, and back.
[[nodiscard]] std::array<char, 32> hex_of(const backend_api::holder_id& id);
[[nodiscard]] std::optional<backend_api::holder_id> holder_of(std::string_view hex);

[[nodiscard]] inline std::string_view view(const std::array<char, 32>& text) {
  return {text.data(), text.size()};
}

/// A duration for the store, which must not end before ours does.
[[nodiscard]] std::int64_t in_ms(backend_api::duration span);

/// One word without blanks, that people can read; and back.
[[nodiscard]] std::string word(std::string_view text);
[[nodiscard]] std::string text_of(std::string_view word);

/// Words of a record, one after the other.
class words {
 public:
  explicit words(std::string_view text) : rest_(text) {}
  std::string_view next() {
    const auto end = rest_.find(' ');
    const std::string_view found = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view{} : rest_.substr(end + 1);
    return found;
  }
  template <class Number = std::int64_t>
  Number number() {
    const std::string_view text = next();
    Number value{};
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  }
  [[nodiscard]] std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}  // namespace sallyport::backends::redis
