#pragma once

#include "backends/redis/reply.hpp"
#include "sim/redis/memory_redis.hpp"
#include "tests/kit/redis_probe.hpp"
#include "tests/kit/redis_server.hpp"
#include "tests/kit/shifted_clock.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::redis_model {

using backends::redis::reply;
using words = std::vector<std::string>;

/// What real Redis leaves open, and so has to be put in order before two answers are compared.
/// who: the fields of a hash, in the fourth place of what the script of that name answers.
enum class order { exact, pairs, items, scan, who };

/// The order of a command's answer, by its name.
order order_of(std::string_view command);

/// A real server and the simulator's, which are told the same commands at the same, standing time.
/// The real one removes expired keys only when somebody looks at them, as the other does.
/// Thread safety: none.
class redis_pair {
 public:
  redis_pair();

  /// The answer of both, or nothing: they differ, and `difference` says how. Errors are compared by
  /// their first word, and messages on subscribed channels have to be the same as well.
  std::optional<reply> execute(const words& command, order how = order::exact);
  /// Looks at all keys: types, values and expiries. False: they differ.
  bool compare_keys();
  [[nodiscard]] const std::string& difference() const noexcept { return difference_; }
  /// The last commands, for people.
  [[nodiscard]] std::string trace() const;

  /// Forgets all keys, scripts and subscriptions; the clock begins anew.
  void reset();
  void move_clock(std::chrono::microseconds by);
  [[nodiscard]] std::chrono::microseconds now() const noexcept { return now_; }

  void subscribe(const std::string& channel, bool sharded = false);
  void unsubscribe(const std::string& channel, bool sharded = false);
  [[nodiscard]] bool subscribed(const std::string& channel, bool sharded = false) const {
    return (sharded ? sharded_channels_ : channels_).contains(channel);
  }

  /// What was published to subscribed channels by the last command.
  struct message {
    bool sharded = false;
    std::string channel;
    std::string payload;
    friend bool operator==(const message&, const message&) = default;
  };
  [[nodiscard]] const std::vector<message>& messages() const noexcept { return messages_; }

 private:
  reply ask_real(const words& command, order how);
  bool compare_messages();
  void note(const std::string& line);

  kit::shifted_clock clock_;
  kit::redis_server server_;
  kit::redis_probe probe_;
  kit::redis_probe listener_;

  sim::redis::script_host host_;
  sim::redis::memory_redis model_;

  std::chrono::microseconds now_{};
  std::set<std::string> channels_;
  std::set<std::string> sharded_channels_;
  std::vector<message> messages_;
  std::string difference_;
  std::deque<std::string> trace_;
};

/// A reply as one line, for people.
std::string to_line(const reply& answer);

}  // namespace sallyport::redis_model
