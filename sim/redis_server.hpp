#pragma once

#include "backends/redis/wire.hpp"
#include "sim/context.hpp"
#include "sim/redis/memory_redis.hpp"
#include "sim/redis_link.hpp"
#include "sim/store.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sallyport::sim {

/// How other libraries give their key back: compare-and-delete.
inline constexpr const char* foreign_release =
    "if redis.call('TYPE', KEYS[1]).ok == 'string' and redis.call('GET', KEYS[1]) == ARGV[1] then "
    "return redis.call('DEL', KEYS[1]) end return 0";

/// One Redis server on a machine of its own: keys, scripts, and who listens to which channel. Its wall
/// clock is the only one that counts for expiry.
/// Thread safety: none.
class redis_server : public server {
 public:
  using words = std::vector<std::string>;
  using script_list = std::span<const backends::redis::script_source* const>;

  redis_server(context& shared, script_list scripts);

  // server
  /// Loads the scripts.
  void greet() override;
  [[nodiscard]] std::uint64_t life() const noexcept override { return life_; }
  /// Listeners and scripts are gone; keys are not.
  void stop() override;

  virtual void add(client_number client, const std::shared_ptr<redis_link>& connections);
  void forget_scripts();

 protected:
  [[nodiscard]] time_point machine_time() const { return clock().at(shared_.loop.now()); }
  [[nodiscard]] std::chrono::microseconds wall_time() const;
  [[nodiscard]] redis::wall_ms wall_ms() const;
  redis::reply run(const words& command);
  /// What it says to a command that it will not run.
  [[nodiscard]] redis::reply draw_refusal();
  /// Something was said on a channel.
  virtual void published(const redis::publication& /*what*/, bool /*heard*/) {}
  [[nodiscard]] redis::keyspace& keys() noexcept { return memory_.keys(); }
  /// Keeps what a disk would, now and then.
  void save_now_and_then();
  void lose_everything() { memory_.keys().clear(); }
  void lose_what_was_not_saved() { memory_.keys() = saved_; }

  [[nodiscard]] context& shared() noexcept { return shared_; }
  [[nodiscard]] const context& shared() const noexcept { return shared_; }

 private:
  std::int64_t publish(const redis::publication& sent);

  context& shared_;
  const script_list scripts_;
  redis::memory_redis memory_;
  redis::keyspace saved_;
  std::map<client_number, std::weak_ptr<redis_link>> links_;
  std::uint64_t life_ = 1;
};

/// The words of a command: by the script's hash, or with the script itself.
[[nodiscard]] std::vector<std::string> words_of(const backends::redis::wire_command& command,
                                                bool by_text);

}  // namespace sallyport::sim
