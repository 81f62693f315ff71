#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/delivery_gate.hpp"
#include "backend_api/hearing.hpp"
#include "backend_api/parked_acquires.hpp"
#include "backend_api/store_identity.hpp"
#include "backends/redis/address.hpp"
#include "backends/redis/node.hpp"
#include "backends/redis/protocol.hpp"
#include "backends/redis/router.hpp"
#include "base/mutex.hpp"
#include "base/random.hpp"
#include "net/pump.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace sallyport::backends::redis {

class request_exchange;
struct replica_proof;

/// One open client of a Redis store: turns requests into commands on the right connection, and
/// answers and messages into events.
///
/// It has no thread: the pump is run by a caller that blocks anyway, or by the runtime's watchdog.
/// Thread safety: all members. The listener is called with a pass of the gate and without a mutex;
/// it may close the session.
class session final : public std::enable_shared_from_this<session>,
                      public node_listener,
                      private backend_api::ear {
 public:
  /// Waits for the first connection, but not for long: a store that can't be reached is an open
  /// client whose requests are answered `unavailable`. One that refuses us is a failure.
  static base::result<std::shared_ptr<session>> open(const backend_api::open_request& request);
  /// Use open().
  session(address where, backend_api::events& listener, std::shared_ptr<net::pump> engine,
          backend_api::hearing::attention attention, std::shared_ptr<const protocol> speech);

  [[nodiscard]] const sallyport::capabilities& capabilities() const { return capabilities_; }
  [[nodiscard]] const std::string& store_id() const noexcept { return identity_.id(); }

  void acquire(const backend_api::acquire_request& request);
  /// Heartbeats among them travel in one command.
  void acquire_all(std::span<const backend_api::acquire_request> batch);
  void renew(std::span<const backend_api::renew_request> batch);
  void leave(const backend_api::leave_request& request, bool withdraw);
  void downgrade(const backend_api::renew_request& request);
  void set_value(const backend_api::renew_request& holder, std::string_view value,
                 backend_api::completion<bool> done);
  void watch(const lock_name& name, bool on) SALLYPORT_EXCLUDES(mutex_);
  void list(std::string_view prefix, std::string_view after, std::size_t limit,
            backend_api::completion<std::vector<lock_info>> done);
  void who(const lock_name& name, backend_api::completion<std::optional<lock_info>> done);
  void break_lock(const lock_name& name, fencing_token observed, backend_api::break_mode mode,
                  backend_api::completion<std::monostate> done);

  backend_api::drive_outcome drive(backend_api::drive_ticket& ticket, time_point deadline) {
    const auto alive = shared_from_this();
    return hearing_.drive(ticket, deadline);
  }
  [[nodiscard]] int attention_fd() const noexcept { return hearing_.attention_fd(); }
  void attend() {
    const auto alive = shared_from_this();
    hearing_.attend();
  }
  /// Waits until what our last calls left to be served has been, so that nobody has to find out.
  void settle(time_point deadline);
  void close();

  // node_listener
  void message(std::string_view channel, std::string_view payload) override
      SALLYPORT_EXCLUDES(mutex_);
  base::result<void> store_named(std::string_view name) override { return identity_.learn(name); }
  void gap_ended() override;
  void node_lost(const net::endpoint& where, const base::failure& why) override;
  void channel_moved(std::string_view channel, const reply& words,
                     const std::shared_ptr<node>& from) override SALLYPORT_EXCLUDES(mutex_);

  /// Who leaves before this never claims: two commands a hand-off instead of three.
  static constexpr duration claim_delay = std::chrono::milliseconds{20};
  /// How long list, who and break_lock wait for one answer.
  static constexpr duration housekeeping_patience = std::chrono::seconds{5};
  /// How many heartbeats one command carries: the server does nothing else meanwhile.
  static constexpr std::size_t most_beats = 50;
  /// How often a command follows a slot that moves, before the trouble is told.
  static constexpr unsigned most_redirections = 8;

 private:
  friend class request_exchange;
  class heartbeats;
  class inquiry;
  class listing;

  // ear
  bool hear(time_point deadline) override;
  void ring() noexcept override { pump_->ring(); }
  [[nodiscard]] backend_api::urgency unfinished() override;

  base::result<std::monostate> connect(const backend_api::open_request& request);
  [[nodiscard]] base::result<std::shared_ptr<router>> make_router(const link_settings& login);
  void wait_for_first_connection();
  /// Sends to the server of the slot, or answers at once when it is not known.
  void dispatch(std::unique_ptr<request_exchange> what);
  /// Null: answers at once.
  void send(std::shared_ptr<node> where, std::unique_ptr<request_exchange> what);
  [[nodiscard]] base::failure no_server();
  /// In a cluster the store's name is on one node, and a lock may be on another.
  void acquire_once_named(const backend_api::acquire_request& request) SALLYPORT_EXCLUDES(mutex_);
  void acquire_now(const backend_api::acquire_request& request);
  /// Nobody will be let in any more.
  void answer_parked() SALLYPORT_EXCLUDES(mutex_);
  /// Whoever leaves is not let in afterwards.
  void give_up_parked(const backend_api::holder_id& holder) SALLYPORT_EXCLUDES(mutex_);
  [[nodiscard]] std::unique_ptr<replica_proof> proof_of(
      const backend_api::acquire_request& request) const;
  /// Changes of watched names are heard where their slots are now.
  void watch_again() SALLYPORT_EXCLUDES(mutex_);
  /// The store's name is on one node of a cluster: it may have changed while another one was away.
  void ask_name_again();
  void ask(wire_command command, std::uint32_t slot, std::function<void(base::result<reply>)> done);
  /// Goes on with what a script left to be served; nobody waits for the answer.
  void serve_rest(wire_command command, std::uint32_t slot);
  void rest_served() noexcept { rests_under_way_.fetch_sub(1, std::memory_order_relaxed); }
  /// Everything about these names, which share a slot in a cluster: one call, and one for every further
  /// page of a long queue.
  void look_at(std::vector<std::string> names, bool also_foreign,
               backend_api::completion<std::vector<lock_info>> done);
  [[nodiscard]] double draw() SALLYPORT_EXCLUDES(mutex_);

  const address address_;
  backend_api::events& listener_;
  const std::shared_ptr<net::pump> pump_;
  const std::shared_ptr<const protocol> speech_;
  backend_api::hearing hearing_;
  backend_api::delivery_gate gate_;
  backend_api::store_identity identity_;
  std::shared_ptr<router> router_;             // constant once open
  sallyport::capabilities capabilities_;       // likewise
  std::atomic<bool> undriven_waiters_{false};  // somebody waits without ever driving
  std::atomic<std::uint32_t> rests_under_way_{0};

  base::mutex mutex_;
  base::random random_ SALLYPORT_GUARDED_BY(mutex_);
  backend_api::parked_acquires parked_ SALLYPORT_GUARDED_BY(mutex_);
  std::unordered_map<std::string, lock_name> watched_ SALLYPORT_GUARDED_BY(mutex_);  // by channel
};

}  // namespace sallyport::backends::redis
