#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/delivery_gate.hpp"
#include "backend_api/hearing.hpp"
#include "backend_api/store_identity.hpp"
#include "backends/sql/connection.hpp"
#include "backends/sql/lanes.hpp"
#include "backends/sql/speech.hpp"
#include "base/mutex.hpp"
#include "net/pump.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::backends::sql {

/// What one open client of any SQL store does: turns requests into calls, and replies into events.
/// Which server it is, how it is greeted and whether it sends notices is the business of who inherits
/// from this.
///
/// It has no thread: the pump is run by a caller that blocks anyway, or by the runtime's watchdog.
/// Thread safety: all members. The listener is called with a pass of the gate and without a mutex; it
/// may close the session.
class session : public std::enable_shared_from_this<session>,
                public connection::owner,
                private backend_api::ear {
 public:
  [[nodiscard]] const sallyport::capabilities& capabilities() const { return capabilities_; }
  [[nodiscard]] const std::string& store_id() const noexcept { return identity_.id(); }

  void acquire(const backend_api::acquire_request& request);
  void leave(const backend_api::leave_request& request, bool withdraw);
  void downgrade(const backend_api::renew_request& request);
  void set_value(const backend_api::renew_request& holder, std::string_view value,
                 backend_api::completion<bool> done);
  virtual void watch(const lock_name& name, bool on) = 0;
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
  virtual void close();

  // connection::owner
  void connected() override;
  void disconnected(const base::failure& why, bool was_up) override SALLYPORT_EXCLUDES(state_);

  /// Who leaves before this never claims: two commands a hand-off instead of three.
  static constexpr duration claim_delay = std::chrono::milliseconds{20};
  /// How long list, who and break_lock wait for their answer.
  static constexpr duration housekeeping_patience = std::chrono::seconds{5};
  /// What the dead left is looked for this often by a client, and by one client at a time.
  static constexpr duration sweep_interval = std::chrono::seconds{60};
  /// A list is asked for in pieces of so many names.
  static constexpr std::size_t most_names_at_once = 128;

 protected:
  /// `scheme`, `store` and `place`: as store_identity.
  session(backend_api::events& listener, std::shared_ptr<net::pump> engine,
          backend_api::hearing::attention attention, std::string_view scheme,
          std::string_view store, std::string_view place);

  /// In one call, on the connection of the first one's contender.
  void renew_together(std::span<const backend_api::renew_request> batch);

  [[nodiscard]] virtual const speech& words() const = 0;
  /// A server's error as a failure.
  [[nodiscard]] virtual base::failure meaning_of(const reply& error) const = 0;
  /// A call ended with this error, which is about to be told.
  virtual void failed(const reply& /*error*/) {}
  /// A contender was told to wait, by this reply; `answer` is on its way to the listener.
  virtual void told_to_wait(const backend_api::holder_id& who, const reply& said,
                            backend_api::waiting& answer) = 0;
  /// A contender does not wait any more, whatever became of it.
  virtual void waits_no_more(const backend_api::holder_id& /*who*/) {}
  /// Somebody holds for long.
  virtual void about_to_renew() {}

  /// Makes the connections for calls, one or two; once, before anything else. Each contender has one of
  /// them for its whole life, so its requests take effect in their order: the second one, if the first
  /// was busy when it came.
  void connect(const connection::settings& how, std::size_t count = 1);
  /// Which one this contender's is.
  [[nodiscard]] std::size_t lane_of(const backend_api::holder_id& who) SALLYPORT_EXCLUDES(state_);
  /// Waits until it is greeted or in trouble, but not for long. What the trouble was.
  [[nodiscard]] std::optional<base::failure> wait_for_first_connection() SALLYPORT_EXCLUDES(state_);
  /// The greeting succeeded, and said what the store is called. A failure ends the attempt.
  base::result<void> greeted(std::string_view store) SALLYPORT_EXCLUDES(state_);
  void set_capabilities(sallyport::capabilities all) {
    capabilities_ = std::move(all);
    capabilities_.store_id = identity_.id();
  }
  /// `whose`: on that contender's connection, behind its earlier calls; zero: it is nobody's.
  /// `answer_by`: else within the patience of housekeeping.
  void ask(call what, std::function<void(base::result<reply>)> done,
           const backend_api::holder_id& whose = {}, std::optional<time_point> answer_by = {});
  /// Notices may have been missed.
  void gap_ended();
  /// From now on somebody waits without ever driving.
  void be_heard_always();

  backend_api::events& listener_;
  const std::shared_ptr<net::pump> pump_;
  backend_api::delivery_gate gate_;

 private:
  class acquire_exchange;
  class renew_exchange;
  class leave_exchange;
  class downgrade_exchange;
  class other_exchange;

  template <class T>
  base::result<T> meaning(const base::result<reply>& said, base::result<T> (*decode)(const reply&));
  [[nodiscard]] base::result<std::vector<backend_api::renew_answer>> renewals_in(
      const base::result<reply>& said, std::size_t asked);
  /// The failure behind a server's error.
  [[nodiscard]] base::failure take_error(const reply& error);
  void sweep_now_and_then() SALLYPORT_EXCLUDES(state_);
  /// Until nothing that died is left.
  void sweep();
  /// A call stopped before it had done all that has to be done for the contenders of its name: goes on
  /// with it. If this client dies before that, those who wait go on when they ask.
  void serve_on(const std::string& name);
  /// `done`: a call whose first parameter is a name; `usual`: how many numbers its answer has.
  void serve_on_after(const base::result<reply>& said, std::size_t usual, const call& done);
  struct listing;
  void list_on(std::shared_ptr<listing> all);
  void choose_lane(const backend_api::holder_id& who) SALLYPORT_EXCLUDES(state_);
  void forget_lane(const backend_api::holder_id& who) SALLYPORT_EXCLUDES(state_);

  // ear
  bool hear(time_point deadline) override;
  void ring() noexcept override { pump_->ring(); }
  [[nodiscard]] backend_api::urgency unfinished() override;

  backend_api::hearing hearing_;
  backend_api::store_identity identity_;
  std::vector<std::shared_ptr<connection>> calls_;  // constant once open
  sallyport::capabilities capabilities_;            // likewise
  std::atomic<bool> undriven_waiters_{false};       // somebody waits without ever driving
  bool ever_connected_ = false;                     // the pump's thread only

  base::mutex state_;
  bool greeted_ SALLYPORT_GUARDED_BY(state_) = false;
  std::optional<base::failure> trouble_ SALLYPORT_GUARDED_BY(state_);
  time_point next_sweep_ SALLYPORT_GUARDED_BY(state_){};
  lanes lanes_ SALLYPORT_GUARDED_BY(state_);
};

}  // namespace sallyport::backends::sql
