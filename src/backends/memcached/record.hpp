#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/holder_id.hpp"
#include <sallyport/types.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// What a lock is in memcached: one item. Its key, and what stands in it.
namespace sallyport::backends::memcached {

/// The longest key that memcached takes.
inline constexpr std::size_t longest_key = 250;
/// So that a digest fits behind it.
inline constexpr std::size_t longest_prefix = 128;

/// The key of a name: prefix and name, or, where that is longer than a key may be or holds a blank,
/// the prefix, the byte 255, which no name holds since it is no UTF-8, and the SHA-256 of the name in
/// hexadecimal digits. So no two names of a prefix have the same key, and a key never holds anything
/// that would end it in a command.
/// REQUIRES: acceptable_prefix(prefix).
[[nodiscard]] std::string key_of(std::string_view prefix, const lock_name& name);
/// At most longest_prefix bytes of UTF-8 without blanks and control characters.
[[nodiscard]] bool acceptable_prefix(std::string_view prefix);

/// What a grant's item says: `sp1 STATE KIND ID TOKEN WAITERS SINCE PID HOST LABEL VALUE`, words with
/// a blank between them. Whatever does not look like that belongs to somebody else's client.
struct record {
  lock_kind kind = lock_kind::mutex;
  bool closed = false;  ///< a tombstone: the grant was broken, and nobody enters before its time
  backend_api::holder_id holder = {};
  /// Zero: the item's own CAS is the token, which is so until the first renewal.
  std::uint64_t token = 0;
  std::uint32_t local_waiters = 0;
  std::int64_t since_ms = 0;  ///< by the holder's wall clock; for people
  std::int64_t pid = 0;
  std::string host = {};
  std::string label = {};
  std::string value = {};  ///< of an election

  friend bool operator==(const record&, const record&) = default;
};

[[nodiscard]] std::string to_value(const record& what);
[[nodiscard]] std::optional<record> from_value(std::string_view text);

}  // namespace sallyport::backends::memcached
