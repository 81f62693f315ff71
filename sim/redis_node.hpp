#pragma once

#include "backends/redis/protocol.hpp"
#include "sim/checkers.hpp"
#include "sim/context.hpp"
#include "sim/messages.hpp"
#include "sim/redis_server.hpp"
#include "sim/store.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sallyport::sim {

/// A Redis server as a store, with the real scripts inside and other users beside us. What it keeps
/// over a restart depends on the fault that strikes. Reports what it does to the checkers, which is
/// how they know the truth.
/// Thread safety: none.
class redis_node final : public store, public redis_server {
 public:
  redis_node(context& shared, checkers& checks);

  // redis_server
  [[nodiscard]] reply execute(const request& asked, client_number from) override;
  [[nodiscard]] reply refuse(const request& asked) override;
  /// Loads the scripts and raises the counter of tokens.
  void greet() override;
  void add(client_number client, const std::shared_ptr<redis_link>& connections) override;

  // store
  [[nodiscard]] std::unique_ptr<store_driver> open(process& owner, client_number client) override;
  [[nodiscard]] time_point now() const override { return machine_time(); }
  void break_some_grant(const lock_name& name, backend_api::break_mode mode) override;
  [[nodiscard]] std::size_t entries_left() override;

  // What may happen to a server.
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

  /// Moments of the server's scripts are whole milliseconds.
  [[nodiscard]] time_point script_time() const;
  // redis_server
  void published(const redis::publication& what, bool heard) override;
  /// What was published since the last call, for the checkers.
  [[nodiscard]] std::vector<backends::memory::notice> take_notices(const lock_name& name);
  /// Whether it still waits, in the queue or aside.
  [[nodiscard]] bool has_ticket(const lock_name& name, const backend_api::holder_id& who);
  void decode(const request& asked, const redis::reply& raw, reply& out);

  context& shared_;
  checkers& checks_;
  backends::redis::protocol operator_;  // a person with the command
  std::map<std::string, client_number, std::less<>> client_of_channel_;
  std::vector<publication> published_;
  std::uint64_t foreigners_ = 0;
};

}  // namespace sallyport::sim
