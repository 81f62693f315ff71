#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sallyport::backends::zookeeper {

/// What a contender says about itself in its node's data, as a flat object of JSON: for people, for
/// `who`, and for what the order of nodes cannot tell.
struct description {
  std::string host{};
  std::string label{};
  std::string value{};  ///< election: what it says
  std::string kind{};   ///< of the lock, where the node's name does not tell
  std::int64_t pid = 0;
  std::uint32_t waiters = 0;  ///< callers of its own process that stand behind it
  /// The token of its grant; zero: the number of the change that last wrote the node.
  std::uint64_t token = 0;
  /// How long it may go on believing in its grant without hearing from the store.
  std::int64_t trust_ms = 0;
  bool closed = false;  ///< a tombstone: its holder was put out

  friend bool operator==(const description&, const description&) = default;
};

[[nodiscard]] std::string to_json(const description& who);
/// nullopt: not written by us.
[[nodiscard]] std::optional<description> from_json(std::string_view text);

}  // namespace sallyport::backends::zookeeper
