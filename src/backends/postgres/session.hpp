#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/delivery_gate.hpp"
#include "backend_api/hearing.hpp"
#include "backends/postgres/address.hpp"
#include "backends/postgres/connection.hpp"
#include "backends/postgres/greeting.hpp"
#include "backends/postgres/listening.hpp"
#include "backends/postgres/speech.hpp"
#include "base/mutex.hpp"
#include "base/random.hpp"
#include "net/pump.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace sallyport::backends::postgres {

/// One open client of a PostgreSQL store: turns requests into calls, and replies and notices into
/// events. Two connections, however many contenders: one for calls, and, once anybody waits, one for
/// notices.
///
/// It has no thread: the pump is run by a caller that blocks anyway, or by the runtime's watchdog.
/// Thread safety: all members. The listener is called with a pass of the gate and without a mutex; it
/// may close the session.
class session final : public std::enable_shared_from_this<session>,
                      public connection::owner,
                      public listening::listener,
                      private backend_api::ear {
 public:
  /// Waits for the first connection, but not for long: a store that can't be reached is an open
  /// client whose requests are answered `unavailable`. One that refuses us is a failure.
  static base::result<std::shared_ptr<session>> open(const backend_api::open_request& request);
  /// Use open().
  session(address where, const backend_api::open_request& request,
          std::shared_ptr<net::pump> engine, backend_api::hearing::attention attention);

  [[nodiscard]] const sallyport::capabilities& capabilities() const { return capabilities_; }

  void acquire(const backend_api::acquire_request& request);
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
  void close();

  // connection::owner
  base::result<std::optional<std::string>> greet(const reply* said, int server_process) override
      SALLYPORT_EXCLUDES(mutex_);
  bool stateless() override { return pooled_.load(std::memory_order_relaxed); }
  void connected() override SALLYPORT_EXCLUDES(mutex_);
  void disconnected(const base::failure& why, bool was_up) override SALLYPORT_EXCLUDES(mutex_);
  void notified(std::string_view /*channel*/, std::string_view /*payload*/) override {}
  // listening::listener
  void message(std::string_view channel, std::string_view payload) override
      SALLYPORT_EXCLUDES(mutex_);
  void gap_ended() override;

  /// How long set_value, list, who and break_lock wait for their answer.
  static constexpr duration housekeeping_patience = std::chrono::seconds{5};
  /// Without notices a waiter asks this often, at the latest.
  static constexpr duration longest_poll = std::chrono::milliseconds{250};
  /// What the dead left is looked for this often by a client, and by one client at a time.
  static constexpr duration sweep_interval = std::chrono::seconds{60};

 private:
  class acquire_exchange;
  class renew_exchange;
  class leave_exchange;
  class downgrade_exchange;
  class other_exchange;

  // ear
  bool hear(time_point deadline) override;
  void ring() noexcept override { pump_->ring(); }
  [[nodiscard]] backend_api::urgency unfinished() override;

  void connect();
  void wait_for_first_connection() SALLYPORT_EXCLUDES(mutex_);
  /// Somebody waits, or holds for long: notices are listened to from now on.
  void listen();
  void sweep_now_and_then() SALLYPORT_EXCLUDES(mutex_);
  void ask(call what, std::function<void(base::result<reply>)> done);
  /// Asks where changes of a watched name are told.
  void ask_channel(const lock_name& name);
  void watch_at(const lock_name& name, const std::string& channel) SALLYPORT_EXCLUDES(mutex_);
  /// How soon one that waits without notices asks again.
  [[nodiscard]] duration poll_after(duration told) SALLYPORT_EXCLUDES(mutex_);

  const address address_;
  backend_api::events& listener_;
  const std::shared_ptr<net::pump> pump_;
  const speech speech_;
  backend_api::hearing hearing_;
  backend_api::delivery_gate gate_;
  std::shared_ptr<connection> calls_;          // constant once open
  std::shared_ptr<listening> notices_;         // likewise
  sallyport::capabilities capabilities_;       // likewise
  std::atomic<bool> pooled_{false};            // as the last greeting found it
  std::atomic<bool> listens_{false};           // listen() was called
  std::atomic<bool> undriven_waiters_{false};  // somebody waits without ever driving
  bool ever_connected_ = false;                // the pump's thread only
  std::optional<greeting> greeting_;           // likewise

  base::mutex mutex_;
  base::random random_ SALLYPORT_GUARDED_BY(mutex_);
  std::optional<server_facts> facts_ SALLYPORT_GUARDED_BY(mutex_);
  std::optional<base::failure> trouble_ SALLYPORT_GUARDED_BY(mutex_);
  time_point next_sweep_ SALLYPORT_GUARDED_BY(mutex_){};
  // Watched names; by channel as soon as that is known.
  std::unordered_map<std::string, lock_name> watched_ SALLYPORT_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::string> watched_channels_ SALLYPORT_GUARDED_BY(mutex_);
};

}  // namespace sallyport::backends::postgres
