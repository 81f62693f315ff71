#pragma once

#include "sim/redis/values.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::sim::redis {

/// Milliseconds since 1970, as the store's clock has them.
using wall_ms = std::int64_t;

/// A key's value and the moment after which it is gone.
struct entry {
  static constexpr wall_ms never = -1;

  std::variant<std::string, hash_value, sorted_set_value> value;
  wall_ms expires_at = never;

  [[nodiscard]] bool expired(wall_ms now) const noexcept {
    return expires_at != never && now > expires_at;
  }
  friend bool operator==(const entry&, const entry&) = default;
};

/// All keys. Whoever looks at an expired key removes it, and nobody else: until then it counts, and
/// a clock that is set back brings it to life again. That is Redis without its background expiry.
/// A plain value: a copy is what a persistent store would find after a restart.
/// Thread safety: none.
class keyspace {
 public:
  /// The live key, or nullptr.
  [[nodiscard]] entry* find(std::string_view key, wall_ms now);
  /// The live key, made with an empty value of type T where there is none. A key of another type is
  /// returned as it is.
  template <class T>
  [[nodiscard]] entry& find_or_make(std::string_view key, wall_ms now) {
    if (auto* found = find(key, now)) return *found;
    return entries_.emplace(std::string(key), entry{T{}, entry::never}).first->second;
  }
  /// Replaces the value; the expiry stays as it was.
  void put_text(std::string_view key, std::string_view text, wall_ms now);
  /// Whether there was a live key.
  bool erase(std::string_view key, wall_ms now);
  void clear() noexcept { entries_.clear(); }
  /// Removes what has expired: the background expiry, when somebody wants it.
  std::size_t remove_expired(wall_ms now);

  /// Expired keys that nobody has looked at are counted, as in Redis.
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  /// All keys, also expired ones, in order.
  [[nodiscard]] std::vector<std::string> sorted_keys() const;

 private:
  struct view_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>{}(text);
    }
  };

  std::unordered_map<std::string, entry, view_hash, std::equal_to<>> entries_;
};

}  // namespace sallyport::sim::redis
