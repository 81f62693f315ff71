#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace sallyport {

/// The fencing number of a grant. Strictly grows per lock name from one exclusive grant to the
/// next. Below 2^53 on every store. Zero means "none".
class fencing_token {
 public:
  constexpr fencing_token() noexcept = default;
  constexpr explicit fencing_token(std::uint64_t value) noexcept : value_(value) {}

  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }
  friend constexpr auto operator<=>(const fencing_token&, const fencing_token&) = default;

 private:
  std::uint64_t value_ = 0;
};

/// The name of a lock: 1-255 bytes of UTF-8 without control characters, compared byte by byte.
/// The constructor throws lock_error (errc::bad_name), so a bad name never reaches a store.
class lock_name {
 public:
  static constexpr std::size_t max_bytes = 255;

  // NOLINTNEXTLINE(google-explicit-constructor): every place that takes a name takes a literal too.
  lock_name(std::string_view text);
  // NOLINTNEXTLINE(google-explicit-constructor)
  lock_name(const char* text) : lock_name(std::string_view(text)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  lock_name(const std::string& text) : lock_name(std::string_view(text)) {}

  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  friend auto operator<=>(const lock_name&, const lock_name&) = default;

  /// Whether `text` would be accepted; `why` (if given) receives the reason when not.
  static bool acceptable(std::string_view text, std::string* why = nullptr);

 private:
  std::string text_;
};

/// What a name is used as. One name, one kind, at a time.
enum class lock_kind : std::uint8_t { mutex, shared_mutex, semaphore, election };

/// How a grant may be combined with others of the same name.
enum class lock_mode : std::uint8_t { exclusive, shared };

[[nodiscard]] std::string_view to_string(lock_kind kind) noexcept;
[[nodiscard]] std::string_view to_string(lock_mode mode) noexcept;

}  // namespace sallyport
