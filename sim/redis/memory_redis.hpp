#pragma once

#include "sim/redis/commands.hpp"
#include "sim/redis/keyspace.hpp"
#include "sim/redis/script_host.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sallyport::sim::redis {

/// What PUBLISH and SPUBLISH pass on. The views live as long as the call.
struct publication {
  bool sharded = false;  ///< SPUBLISH
  std::string_view channel;
  std::string_view payload;
};

/// A Redis 7.0 server without sockets, clocks, threads and disk: the commands that locks need, with
/// the answers of the real one. It is told the time, and has no other input; what the real one leaves
/// open (the order of a hash, the pages of SCAN) is sorted here.
///
/// Tests compare it with a real server, command by command and script by script (tests/redis_model).
/// Thread safety: none.
class memory_redis {
 public:
  /// Hands a message to the subscribers and says how many there were. Must not call back.
  using publish_hook = std::function<std::int64_t(const publication&)>;

  /// `host` must outlive it, and may serve others, too.
  explicit memory_redis(script_host& host, publish_hook on_publish = {})
      : host_(host), on_publish_(std::move(on_publish)) {}

  /// `now` is the time since 1970 by the store's clock; it may go back, as such clocks do.
  reply execute(arguments command, std::chrono::microseconds now);
  reply execute(const std::vector<std::string>& command, std::chrono::microseconds now);
  reply execute(std::initializer_list<std::string_view> command, std::chrono::microseconds now) {
    return execute(arguments(command.begin(), command.size()), now);
  }

  /// All keys: copy them to keep what a disk would, assign to bring it back.
  [[nodiscard]] keyspace& keys() noexcept { return keys_; }
  [[nodiscard]] const keyspace& keys() const noexcept { return keys_; }
  /// Scripts are in memory only: a restart forgets them, and so does SCRIPT FLUSH.
  void forget_scripts() noexcept { known_scripts_.clear(); }

  // For the commands.
  std::int64_t publish(const publication& message) const;
  script_host::loaded load_script(std::string_view body);
  [[nodiscard]] const script_host::script* find_script(std::string_view sha1) const;
  reply run_script(const script_host::script& what, arguments keys, arguments values,
                   command_context& here);

 private:
  struct view_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>{}(text);
    }
  };

  script_host& host_;
  publish_hook on_publish_;
  keyspace keys_;
  std::unordered_map<std::string, const script_host::script*, view_hash, std::equal_to<>>
      known_scripts_;
};

}  // namespace sallyport::sim::redis
