#pragma once

#include "backends/etcd/layout.hpp"
#include "backends/etcd/model_store.hpp"
#include "sim/checkers.hpp"
#include "sim/cluster.hpp"
#include "sim/context.hpp"
#include "sim/store.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace sallyport::sim {

/// Hears of what is watched; called when a message has come to the client's machine.
class etcd_watcher {
 public:
  etcd_watcher() = default;
  etcd_watcher(const etcd_watcher&) = delete;
  etcd_watcher& operator=(const etcd_watcher&) = delete;

  virtual void reported(std::uint64_t stream, const backends::etcd::model_store::report& said) = 0;
  virtual void stream_ended(std::uint64_t stream) = 0;

 protected:
  ~etcd_watcher() = default;
};

/// An etcd cluster: one order of changes, leases counted by the leader's clock and begun anew by a
/// new leader, and members that answer keep-alives although they lead no more.
/// Thread safety: none.
class etcd_store final : public store, private cluster::owner {
 public:
  using lease_id = backends::etcd::lease_id;
  using revision = backends::etcd::revision;

  /// What a member says to a request.
  struct answer {
    enum class word : std::uint8_t {
      done,
      no_leader,
      no_such_lease,
      lease_exists,
      refused,
      timed_out,  ///< it may be done, now or later
    };
    word is = word::done;
    backends::etcd::txn_answer value{};
    std::int64_t seconds = 0;
  };
  using respond = std::function<void(const answer&)>;

  etcd_store(context& shared, checkers& checks);
  ~etcd_store() override;

  // store
  [[nodiscard]] std::unique_ptr<store_driver> open(process& owner, std::uint64_t client) override;
  [[nodiscard]] time_point now() const override;
  void break_some_grant(const lock_name& name, backend_api::break_mode mode) override;
  [[nodiscard]] std::size_t entries_left() override;
  [[nodiscard]] std::string remains() const override;
  /// It has no keys, but on leases whose revocation was not confirmed.
  void check_nothing_of(std::uint64_t client) override;

  [[nodiscard]] cluster& members() noexcept { return members_; }
  /// What elections, and leases of whole seconds, add to every wait.
  [[nodiscard]] duration slowness() const;
  void heal() { members_.heal(); }
  /// The server ends some watch.
  void cancel_some_watch();
  /// For a while there is no room: transactions that may write, and new leases, are refused.
  void fill_up();
  void be_full(bool full) noexcept { full_ = full; }

  // At a member, when a request has come there. `says`: unless it never answers.
  void txn(member_number at, const backends::etcd::txn& what, const respond& says);
  void grant(member_number at, std::uint64_t client, lease_id id, std::int64_t seconds,
             const respond& says);
  void revoke(member_number at, lease_id id, const respond& says);
  /// The seconds that it says are left, and its term; nothing: it does not answer.
  struct kept {
    std::int64_t seconds = 0;
    std::uint64_t term = 0;
  };
  [[nodiscard]] std::optional<kept> keep_alive(member_number at, lease_id id);

  // Watches: one stream for each client.
  void open_stream(std::uint64_t client, std::uint64_t number, member_number at, etcd_watcher& who);
  void close_stream(std::uint64_t client);
  void watch(std::uint64_t client, std::uint64_t stream, backends::etcd::watch_number number,
             backends::etcd::model_store::watcher what);
  void unwatch(std::uint64_t client, std::uint64_t stream, backends::etcd::watch_number number);

  /// When, in the checkers' order, this revision came about.
  [[nodiscard]] std::uint64_t made(revision which) const;
  /// A client has asked for its revocation, or has heard that it is done.
  void revocation_asked(lease_id id) { not_revoked_.insert(id); }
  void revocation_confirmed(lease_id id) { not_revoked_.erase(id); }

 private:
  struct stream {
    std::uint64_t number = 0;
    member_number at = 0;
    etcd_watcher* who = nullptr;
    lane back;
    bool deaf = false;                                     // nothing comes through any more
    std::deque<backends::etcd::model_store::report> held;  // the member does not know of it yet
  };

  // cluster::owner
  void elected() override;
  void touch_changed(member_number which) override;
  void stopped(member_number which) override;
  void noticed(member_number which) override;
  [[nodiscard]] duration draw_patience() override;

  /// Does it when the member reaches the leader: now, later, or never.
  void through_leader(member_number at, std::function<void()> what, const respond& says);
  /// Says so, if it does.
  [[nodiscard]] bool refuses(const respond& says);
  /// What is done may be told as a time-out.
  [[nodiscard]] respond with_trouble(const respond& says);
  void apply(member_number at, const backends::etcd::txn& what, const respond& says);
  /// After every change.
  void changed(revision before);
  void check_entries(const std::vector<backends::etcd::operation>& done);
  void check_tombstones();
  void check_order(const backends::etcd::key_value& in);
  void publish();
  void send_report(std::uint64_t client, stream& on,
                   const backends::etcd::model_store::report& said);
  /// Nothing comes through any more, and nobody knows for a while.
  void go_deaf(std::uint64_t client, stream& on);
  void sweep();
  void count_ending(lease_id id);
  void note_txn(const backends::etcd::txn& what, const backends::etcd::txn_answer& said);

  context& shared_;
  checkers& checks_;
  const backends::etcd::layout keys_;
  backends::etcd::model_store model_;
  cluster members_;
  std::map<lease_id, std::uint64_t> owners_;  // by client
  std::map<lease_id, true_time> granted_at_;  // those that ever were
  std::map<lease_id, std::int64_t> seconds_;  // likewise
  std::map<std::uint64_t, stream> streams_;   // by client
  std::map<member_number, std::vector<std::function<void()>>> hanging_;
  std::vector<std::uint64_t> made_;         // by revision
  std::set<std::string> were_shared_;       // keys of writers that were downgraded
  std::set<lease_id> not_revoked_;          // or nobody knows
  std::map<lease_id, std::size_t> stones_;  // tombstones: of how many keys
  bool full_ = false;
};

}  // namespace sallyport::sim
