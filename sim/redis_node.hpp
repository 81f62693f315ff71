#pragma once

#include "backends/redis/protocol.hpp"
#include "sim/checkers.hpp"
#include "sim/context.hpp"
#include "sim/messages.hpp"
#include "sim/redis/memory_redis.hpp"
#include "sim/redis_link.hpp"
#include "sim/store.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sallyport::sim {

/// A Redis server, with the real scripts inside and other users beside us. Its wall clock is the only
/// one that counts. What it keeps over a restart depends on the fault that strikes. Reports what it
/// does to the checkers, which is how they know the truth.
/// Thread safety: none.
class redis_node final : public remote_store {
 public:
  using words = std::vector<std::string>;

  redis_node(context& shared, checkers& checks);

  // remote_store
  [[nodiscard]] reply execute(const request& asked, client_number from) override;
  /// Loads the scripts and raises the counter of tokens.
  void greet() override;
  [[nodiscard]] std::uint64_t life() const noexcept override { return life_; }
  /// Listeners and scripts are gone; keys are not.
  void stop() override;

  // store
  [[nodiscard]] std::unique_ptr<store_driver> open(process& owner, client_number client) override;
  [[nodiscard]] time_point now() const override { return clock().at(shared_.loop.now()); }
  void break_some_grant(const lock_name& name, backend_api::break_mode mode) override;
  [[nodiscard]] std::size_t entries_left() override;

  void add(client_number client, const std::shared_ptr<redis_link>& connections);

  // What may happen to a server.
  void forget_scripts();
  /// Everything, or what was written since the last time that the disk was.
  void lose_data();
  void flush_all();
  /// A client of another library takes a free name for a while, and gives it back or dies.
  void lend_to_foreigner();
  /// Somebody deletes a lock of ours.
  void delete_some_lock();

 private:
  struct publication {
    std::string channel;
    std::string payload;
    bool heard = false;
  };

  [[nodiscard]] std::chrono::microseconds wall_time() const;
  /// Moments of the server's scripts are whole milliseconds.
  [[nodiscard]] time_point script_time() const;
  redis::reply run(const words& command);
  std::int64_t publish(const redis::publication& sent);
  /// What was published since the last call, for the checkers.
  [[nodiscard]] std::vector<backends::memory::notice> take_notices(const lock_name& name);
  void decode(const request& asked, const redis::reply& raw, reply& out);
  void save_now_and_then();

  context& shared_;
  checkers& checks_;
  redis::memory_redis server_;
  redis::keyspace saved_;
  backends::redis::protocol operator_;  // a person with the command
  std::map<client_number, std::weak_ptr<redis_link>> links_;
  std::map<std::string, client_number, std::less<>> client_of_channel_;
  std::vector<publication> published_;
  std::uint64_t life_ = 1;
  std::uint64_t foreigners_ = 0;
};

/// The words of a command: by the script's hash, or with the script itself.
[[nodiscard]] std::vector<std::string> words_of(const backends::redis::wire_command& command,
                                                bool by_text);

}  // namespace sallyport::sim
