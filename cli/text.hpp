#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::cli {

/// How many bytes the UTF-8 character at `at` has; 0: there is none (overlong forms, surrogates and
/// what lies beyond U+10FFFF included).
[[nodiscard]] std::size_t character_length(std::string_view text, std::size_t at) noexcept;

/// `text` for a terminal: control characters (a store may hold anything) become blanks, so that
/// nothing in it can move the cursor or start a new line; bytes that are not UTF-8 become '?'.
[[nodiscard]] std::string printable(std::string_view text);

/// 'text', for sentences.
[[nodiscard]] std::string quoted(std::string_view text);
/// Exact matches, so that a std::quoted which some header brought along is never the better one.
[[nodiscard]] inline std::string quoted(const std::string& text) {
  return quoted(std::string_view(text));
}
[[nodiscard]] inline std::string quoted(const char* text) { return quoted(std::string_view(text)); }
[[nodiscard]] inline std::string quoted(std::string& text) {
  return quoted(std::string_view(text));
}

/// How many columns UTF-8 text takes, counting each character as one.
[[nodiscard]] std::size_t columns(std::string_view text) noexcept;

/// Rows of cells with aligned columns, two blanks between them. The first row is the head.
class table {
 public:
  explicit table(std::vector<std::string> head) { add(std::move(head)); }
  void add(std::vector<std::string> cells);
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// The one of `known` that was probably meant by `given`; empty when nothing is near.
[[nodiscard]] std::optional<std::string_view> nearest(std::string_view given,
                                                      const std::vector<std::string_view>& known);

/// "2", "1.5", "500ms", "30s", "5m", "2h", "1d": a bare number is seconds. Empty: not a duration,
/// negative, or too long for the type.
[[nodiscard]] std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

/// For people: "250 ms", "3.2 s", "2 min 5 s", "3 h 12 min", "2 d 3 h".
[[nodiscard]] std::string to_text(std::chrono::milliseconds duration);

/// A whole number without sign; empty when it is anything else or larger than `limit`.
[[nodiscard]] std::optional<unsigned long long> parse_number(std::string_view text,
                                                             unsigned long long limit);

}  // namespace sallyport::cli
