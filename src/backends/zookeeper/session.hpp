#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/delivery_gate.hpp"
#include "backend_api/parked_acquires.hpp"
#include "backend_api/store_identity.hpp"
#include "backends/zookeeper/contention.hpp"
#include "backends/zookeeper/wire.hpp"
#include "base/descriptor.hpp"
#include "base/mutex.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace sallyport::backends::zookeeper {

/// One open client of an ensemble: carries out what `contention` says, on a wire.
///
/// Whoever steps the machine appends what is to be done to one queue, and one thread at a time works
/// it off without a mutex: so orders leave in the order in which they were decided on. Answers come
/// on the library's threads; time passes on a blocked caller's (drive) or on the watchdog's (attend).
/// Thread safety: all members. The listener is called with a pass of the gate and without a mutex;
/// it may close the session.
class session final : public std::enable_shared_from_this<session>, public wire_listener {
 public:
  /// Does not wait for the store: one that can't be reached is an open client whose requests are
  /// answered `unavailable`.
  static base::result<std::shared_ptr<session>> open(const backend_api::open_request& request);
  /// Use open().
  session(const address& where, const backend_api::open_request& request, base::descriptor timer);

  [[nodiscard]] const sallyport::capabilities& capabilities() const { return capabilities_; }
  [[nodiscard]] const std::string& store_id() const noexcept { return identity_.id(); }

  void acquire(const backend_api::acquire_request& request) SALLYPORT_EXCLUDES(mutex_);
  void renew(std::span<const backend_api::renew_request> batch) SALLYPORT_EXCLUDES(mutex_);
  void leave(const backend_api::leave_request& request, bool withdraw) SALLYPORT_EXCLUDES(mutex_);
  void downgrade(const backend_api::renew_request& request) SALLYPORT_EXCLUDES(mutex_);
  void set_value(const backend_api::renew_request& holder, std::string_view value,
                 backend_api::completion<bool> done) SALLYPORT_EXCLUDES(mutex_);
  void watch(const lock_name& name, bool on) SALLYPORT_EXCLUDES(mutex_);
  void list(std::string_view prefix, std::string_view after, std::size_t limit,
            backend_api::completion<std::vector<lock_info>> done);
  void who(const lock_name& name, backend_api::completion<std::optional<lock_info>> done);
  void break_lock(const lock_name& name, fencing_token observed, backend_api::break_mode mode,
                  backend_api::completion<std::monostate> done);
  backend_api::drive_outcome drive(backend_api::drive_ticket& ticket, time_point deadline)
      SALLYPORT_EXCLUDES(mutex_);
  [[nodiscard]] int attention_fd() const noexcept { return timer_.number(); }
  void attend() SALLYPORT_EXCLUDES(mutex_);
  void close() SALLYPORT_EXCLUDES(mutex_);

  // wire_listener
  void answered(errand_number errand, reply said) override SALLYPORT_EXCLUDES(mutex_);
  void line_up(line_number line, session_id number, duration timeout) override
      SALLYPORT_EXCLUDES(mutex_);
  void line_down(line_number line) override SALLYPORT_EXCLUDES(mutex_);
  void line_ended(line_number line) override SALLYPORT_EXCLUDES(mutex_);
  void happened(const std::string& path, bool gone, bool below) override SALLYPORT_EXCLUDES(mutex_);

  /// How long list, who and break_lock wait for each of their answers.
  static constexpr duration housekeeping_patience = std::chrono::seconds{2};

 private:
  using answers = std::vector<reply>;
  struct sight;
  struct scan;
  struct breaking;

  /// Steps the machine and carries out what it says.
  template <class Step>
  void step(Step&& what) SALLYPORT_EXCLUDES(mutex_);
  /// The same for what the wire tells.
  template <class Step>
  void heard(Step&& what) SALLYPORT_EXCLUDES(mutex_);
  void run_due() SALLYPORT_EXCLUDES(mutex_);
  void set_timer() SALLYPORT_REQUIRES(mutex_);
  void work_off() SALLYPORT_EXCLUDES(mutex_);
  void carry_out(action& what);
  bool tell(action& what);

  /// Answered within the patience of housekeeping, in the order of the requests.
  void ask(line_number line, std::vector<request> all, std::function<void(answers)> done);
  void ask_until(time_point answer_by, line_number line, std::vector<request> all,
                 std::function<void(answers)> done);

  using name_question = contention::name_question;
  /// Before anything is granted the store's name has to be known. It is asked for on each session, and
  /// again after trouble with its connection: another ensemble may stand there.
  void acquire_once_named(const backend_api::acquire_request& request,
                          const name_question& question) SALLYPORT_EXCLUDES(mutex_);
  /// The store has no name yet.
  void give_name(const backend_api::holder_id& who, const name_question& question,
                 time_point answer_by);
  /// The answer of the last read, for the one who waits for it.
  void named(const backend_api::holder_id& who, const name_question& question, const reply& said)
      SALLYPORT_EXCLUDES(mutex_);
  /// Nobody will be let in any more.
  void answer_parked() SALLYPORT_EXCLUDES(mutex_);
  /// Whoever leaves is not let in afterwards.
  void give_up_parked(const backend_api::holder_id& holder) SALLYPORT_EXCLUDES(mutex_);
  /// A session for a tombstone.
  line_number open_line(duration timeout);
  void end_line(line_number line, bool keep_session);

  // inspection.cpp
  void see(const std::string& name, std::function<void(base::result<sight>)> done);
  void see_nodes(const std::shared_ptr<sight>& what, std::function<void(base::result<sight>)> done);
  void scan_folder(const std::shared_ptr<scan>& all, const std::string& folder,
                   const std::string& name);
  void scan_on(const std::shared_ptr<scan>& all);
  void break_seen(const std::shared_ptr<breaking>& what);
  void put_out(const std::shared_ptr<breaking>& what, line_number line);

  backend_api::events& listener_;
  const layout nodes_;
  backend_api::store_identity identity_;
  const sallyport::capabilities capabilities_;
  const base::descriptor timer_;
  backend_api::delivery_gate gate_;
  wire wire_;  // used by whoever works off

  base::mutex mutex_;
  contention machine_ SALLYPORT_GUARDED_BY(mutex_);
  std::deque<action> to_do_ SALLYPORT_GUARDED_BY(mutex_);
  bool working_ SALLYPORT_GUARDED_BY(mutex_) = false;
  backend_api::parked_acquires parked_ SALLYPORT_GUARDED_BY(mutex_);
  time_point armed_ SALLYPORT_GUARDED_BY(mutex_) = time_point::max();
  std::unordered_map<std::uint64_t, backend_api::completion<bool>> values_
      SALLYPORT_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, std::function<void(answers)>> asked_
      SALLYPORT_GUARDED_BY(mutex_);
  std::uint64_t next_ticket_ SALLYPORT_GUARDED_BY(mutex_) = 1;
};

}  // namespace sallyport::backends::zookeeper
