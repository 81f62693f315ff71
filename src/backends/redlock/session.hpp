#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/delivery_gate.hpp"
#include "backend_api/hearing.hpp"
#include "backend_api/store_identity.hpp"
#include "backends/redis/address.hpp"
#include "backends/redlock/member.hpp"
#include "backends/redlock/quorum.hpp"
#include "base/mutex.hpp"
#include "net/pump.hpp"

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sallyport::backends::redlock {

/// One open client of a quorum: carries out what `quorum` says, on the connections of its members.
///
/// It has no thread: the pump is run by a caller that blocks anyway, or by the runtime's watchdog.
/// Whoever steps the quorum appends what is to be done to one queue, and one thread at a time works
/// it off without a mutex: so commands leave in the order in which they were decided on.
/// Thread safety: all members. The listener is called with a pass of the gate and without a mutex;
/// it may close the session.
class session final : public std::enable_shared_from_this<session>,
                      public member_listener,
                      private backend_api::ear {
 public:
  /// Waits for a majority of nodes, but not for long: a store that can't be reached is an open
  /// client whose requests are answered `unavailable`. Nodes that refuse us are a failure.
  static base::result<std::shared_ptr<session>> open(const backend_api::open_request& request);
  /// Use open().
  session(redis::address where, backend_api::events& listener, std::shared_ptr<net::pump> engine,
          backend_api::hearing::attention attention, std::shared_ptr<const speech> words,
          quorum::settings machine);

  [[nodiscard]] const sallyport::capabilities& capabilities() const { return capabilities_; }
  [[nodiscard]] const std::string& store_id() const noexcept { return identity_.id(); }

  void acquire(const backend_api::acquire_request& request) SALLYPORT_EXCLUDES(mutex_);
  void renew(std::span<const backend_api::renew_request> batch) SALLYPORT_EXCLUDES(mutex_);
  void leave(const backend_api::leave_request& request, bool withdraw) SALLYPORT_EXCLUDES(mutex_);
  // Mutexes only: nothing is shared, carries a value or is watched.
  void downgrade(const backend_api::renew_request& request);
  void set_value(const backend_api::renew_request& holder, std::string_view value,
                 const backend_api::completion<bool>& done);
  void watch(const lock_name& /*name*/, bool /*on*/) {}
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
  /// A majority answers for all; here the others are waited for that have not heard everything yet.
  void settle(time_point deadline) SALLYPORT_EXCLUDES(mutex_);
  void close();

  // member_listener
  void member_up(node_number which, const node_facts& facts) override SALLYPORT_EXCLUDES(mutex_);
  void member_down(node_number which, const base::failure& why) override SALLYPORT_EXCLUDES(mutex_);
  void member_said(node_number which, std::string_view message) override SALLYPORT_EXCLUDES(mutex_);
  void member_heard(node_number which) override SALLYPORT_EXCLUDES(mutex_);
  void member_deaf(node_number which) override SALLYPORT_EXCLUDES(mutex_);

  /// How long list, who and break_lock wait for one node's answer.
  static constexpr duration housekeeping_patience = std::chrono::seconds{2};

 private:
  class order;
  class timer;
  class poll;
  class listing;

  // ear
  bool hear(time_point deadline) override;
  void ring() noexcept override { pump_->ring(); }
  [[nodiscard]] backend_api::urgency unfinished() override SALLYPORT_EXCLUDES(mutex_);

  /// Some node that is there has not answered all that it was told.
  [[nodiscard]] bool stragglers() SALLYPORT_EXCLUDES(mutex_);
  base::result<std::monostate> connect(const backend_api::open_request& request);
  /// Nothing to do where no member is to be replaced.
  base::result<std::monostate> finish_replacing() SALLYPORT_EXCLUDES(mutex_);
  void wait_for_majority();
  void describe() SALLYPORT_EXCLUDES(mutex_);
  /// Steps the machine and carries out what it says.
  template <class Step>
  void step(Step&& what) SALLYPORT_EXCLUDES(mutex_);
  void work_off() SALLYPORT_EXCLUDES(mutex_);
  void carry_out(quorum_action& what);
  /// How many nodes the store has.
  [[nodiscard]] unsigned store_size() SALLYPORT_EXCLUDES(mutex_);
  void timer_due(time_point now) SALLYPORT_EXCLUDES(mutex_);
  /// Asks all members at once; `done` hears each answer that came, and that no other will.
  /// Those that are no members do not answer.
  void ask_all(const std::function<redis::wire_command(node_number)>& command,
               std::function<void(std::vector<std::optional<reply>>)> done);

  const redis::address address_;
  backend_api::events& listener_;
  const std::shared_ptr<net::pump> pump_;
  const std::shared_ptr<const speech> speech_;
  backend_api::hearing hearing_;
  backend_api::delivery_gate gate_;
  // What the marks of a majority say, so that gates stay bound when the nodes are called otherwise.
  backend_api::store_identity identity_;
  std::vector<std::shared_ptr<member>> members_;  // constant once open
  std::shared_ptr<timer> timer_;                  // likewise
  sallyport::capabilities capabilities_;          // likewise
  std::atomic<bool> undriven_waiters_{false};     // somebody waits without ever driving

  base::mutex mutex_;
  quorum machine_ SALLYPORT_GUARDED_BY(mutex_);
  std::deque<quorum_action> to_do_ SALLYPORT_GUARDED_BY(mutex_);
  bool working_ SALLYPORT_GUARDED_BY(mutex_) = false;
  std::string named_ SALLYPORT_GUARDED_BY(mutex_);   // the last that identity_ was told
  node_set heard_ SALLYPORT_GUARDED_BY(mutex_) = 0;  // whose notices come
  node_set tried_ SALLYPORT_GUARDED_BY(mutex_) = 0;  // reached once, or found unreachable
};

}  // namespace sallyport::backends::redlock
