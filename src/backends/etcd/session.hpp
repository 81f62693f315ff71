#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/delivery_gate.hpp"
#include "backend_api/store_identity.hpp"
#include "backends/etcd/contention.hpp"
#include "backends/etcd/naming.hpp"
#include "backends/etcd/transport.hpp"
#include "base/mutex.hpp"

#include <atomic>
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

namespace sallyport::backends::etcd {

/// One open client of a cluster: carries out what `contention` says, on a transport.
///
/// Whoever steps the machine appends what is to be done to one queue, and one thread at a time works
/// it off without a mutex: so orders leave in the order in which they were decided on.
/// Thread safety: all members. The listener is called with a pass of the gate and without a mutex;
/// it may close the session.
class session final : public std::enable_shared_from_this<session>, public transport_listener {
 public:
  /// Does not wait for the store: one that can't be reached is an open client whose requests are
  /// answered `unavailable`.
  static base::result<std::shared_ptr<session>> open(const backend_api::open_request& request);
  /// Use open().
  session(const address& where, const backend_api::open_request& request);

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
  [[nodiscard]] std::optional<store_entry> entry_of(const backend_api::holder_id& who) const
      SALLYPORT_EXCLUDES(mutex_);
  /// As backend::drive.
  backend_api::drive_outcome drive(backend_api::drive_ticket& ticket, time_point deadline);
  void close() SALLYPORT_EXCLUDES(mutex_);

  // transport_listener
  void connected() override;
  void kept_alive(const codec::kept_alive& said) override;
  void keep_alives_over(stream_end how) override;
  void watch_reported(const codec::watch_report& said) override;
  void watches_over(stream_end how) override;
  void watches_back() override;
  void alarm_rang() override;

  /// How long list, who and break_lock wait for each of their answers.
  static constexpr duration housekeeping_patience = std::chrono::seconds{2};

 private:
  /// Random; sixteen digits in hex, always: the first bit of 64 is the sign, the second is set.
  static lease_id fresh_lease();
  /// Steps the machine and carries out what it says.
  template <class Step>
  void step(Step&& what) SALLYPORT_EXCLUDES(mutex_);
  /// The same for what the transport tells.
  template <class Step>
  void heard(Step&& what) SALLYPORT_EXCLUDES(mutex_);
  void work_off() SALLYPORT_EXCLUDES(mutex_);
  void carry_out(action& what);
  void send(txn_order& what);
  /// Before anything is granted the store's name has to be known. It is asked for again after trouble
  /// with the connection: another cluster may stand there. False: nothing has to be waited for.
  bool park_until_named(const backend_api::acquire_request& request) SALLYPORT_EXCLUDES(mutex_);
  /// A grant that came after such trouble is told when the name is known again, and told as
  /// outcome_unknown if that fails or if it is lost meanwhile.
  bool keep_until_named(const backend_api::holder_id& holder, const backend_api::granted& grant)
      SALLYPORT_EXCLUDES(mutex_);
  bool give_up_grant(const backend_api::lost_told& what) SALLYPORT_EXCLUDES(mutex_);
  void ask_name(const name_question& question);
  /// The store has none yet.
  void give_name(const name_question& question);
  void named(const name_question& question, const reply<operation_answer>& said)
      SALLYPORT_EXCLUDES(mutex_);
  [[nodiscard]] base::result<void> learn_name(const reply<operation_answer>& said);
  void connection_doubted() SALLYPORT_EXCLUDES(mutex_);
  /// Nobody will be let in any more.
  void answer_parked() SALLYPORT_EXCLUDES(mutex_);
  /// Whoever leaves is not let in afterwards.
  void give_up_parked(const backend_api::holder_id& holder) SALLYPORT_EXCLUDES(mutex_);
  void ask(const txn& what, std::function<void(const reply<txn_answer>&)> done);

  // inspection.cpp
  struct sight;
  struct scan;
  struct breaking;
  void see(const std::string& name, std::function<void(base::result<sight>)> done);
  void time_leases(const std::shared_ptr<sight>& what,
                   const std::function<void(base::result<sight>)>& done);
  void scan_on(const std::shared_ptr<scan>& all);
  void scanned(const std::shared_ptr<scan>& all);
  void break_seen(const std::shared_ptr<breaking>& what);
  void put_tombstone(const std::shared_ptr<breaking>& what, std::int64_t seconds);
  void broken(const std::shared_ptr<breaking>& what, const reply<txn_answer>& said, lease_id stone);

  backend_api::events& listener_;
  const layout keys_;
  sallyport::capabilities capabilities_;  // constant once open
  std::shared_ptr<transport> transport_;  // likewise
  backend_api::delivery_gate gate_;
  backend_api::store_identity identity_;
  std::atomic<int> farewells_{0};  // revocations under way

  mutable base::mutex mutex_;
  contention machine_ SALLYPORT_GUARDED_BY(mutex_);
  std::deque<action> to_do_ SALLYPORT_GUARDED_BY(mutex_);
  bool working_ SALLYPORT_GUARDED_BY(mutex_) = false;
  naming naming_ SALLYPORT_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, backend_api::completion<bool>> values_
      SALLYPORT_GUARDED_BY(mutex_);
  std::uint64_t next_value_ SALLYPORT_GUARDED_BY(mutex_) = 1;
};

}  // namespace sallyport::backends::etcd
