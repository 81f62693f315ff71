#pragma once

#include "backend_api/requests.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

/// How values of ours look as whole numbers, which is what servers are told and tell.
namespace sallyport::backends::sql {

/// No call lets in or takes away more contenders than this: whoever needs more calls again. So
/// nobody stands behind a long transaction on a busy name.
inline constexpr int most_contenders_at_once = 128;

/// Zero where there is none.
[[nodiscard]] inline std::int64_t number_in(std::string_view text) noexcept {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

[[nodiscard]] inline fencing_token token_of(std::int64_t number) noexcept {
  return fencing_token(static_cast<std::uint64_t>(std::max<std::int64_t>(number, 0)));
}

[[nodiscard]] inline backend_api::duration span_of(std::int64_t ms) noexcept {
  return std::chrono::milliseconds{std::max<std::int64_t>(ms, 0)};
}

[[nodiscard]] inline std::uint32_t count_of(std::int64_t number) noexcept {
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(number, 0, INT32_MAX));
}

/// A duration for the store, which must not end before ours does.
[[nodiscard]] inline std::int64_t in_ms(backend_api::duration span) {
  return std::chrono::ceil<std::chrono::milliseconds>(span).count();
}

/// What fits into an integer of the server.
[[nodiscard]] inline std::int64_t small(std::uint64_t number) noexcept {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(number, INT32_MAX));
}

[[nodiscard]] inline std::int64_t number_of(lock_kind kind) noexcept {
  switch (kind) {
    case lock_kind::mutex:
      return 1;
    case lock_kind::shared_mutex:
      return 2;
    case lock_kind::semaphore:
      return 3;
    case lock_kind::election:
      return 4;
  }
  return 0;
}

[[nodiscard]] inline std::int64_t number_of(lock_kind kind, lock_mode mode) noexcept {
  return kind == lock_kind::shared_mutex && mode == lock_mode::shared ? 1 : 0;
}

[[nodiscard]] inline std::int64_t number_of(fencing_token token) noexcept {
  return static_cast<std::int64_t>(
      std::min<std::uint64_t>(token.value(), static_cast<std::uint64_t>(INT64_MAX)));
}

/// 16 bytes, as the tables have them.
[[nodiscard]] inline std::string bytes_of(const backend_api::holder_id& id) {
  std::string out;
  for (const std::uint64_t half : {id.high, id.low}) {
    for (unsigned shift = 64; shift > 0; shift -= 8) {
      out += static_cast<char>((half >> (shift - 8)) & 0xffU);
    }
  }
  return out;
}

}  // namespace sallyport::backends::sql
