#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sallyport::backends::etcd {

/// What a contender says about itself in its value, as a flat object of JSON: for people, for `who`,
/// and for what the order of keys cannot tell.
struct description {
  std::string host{};
  std::string label{};
  std::int64_t pid = 0;
  std::int64_t since_ms = 0;  ///< by the wall clock of its machine, for people only
  std::uint32_t waiters = 0;  ///< callers of its own process that stand behind it
  std::uint32_t permits = 0;  ///< semaphore: N
  /// The token of its grant; zero: the revision at which the key was last changed.
  std::uint64_t token = 0;
  bool held = false;    ///< it knows that it is in; readers and permits do not say so
  bool shared = false;  ///< a writer that was downgraded
  bool closed = false;  ///< a tombstone: its holder was put out

  friend bool operator==(const description&, const description&) = default;
};

[[nodiscard]] std::string to_json(const description& who);
/// nullopt: not written by us.
[[nodiscard]] std::optional<description> from_json(std::string_view text);

}  // namespace sallyport::backends::etcd
