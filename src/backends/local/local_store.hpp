#pragma once

#include "backends/local/attachment.hpp"
#include "backends/local/inbox.hpp"
#include "backends/local/lock_rules.hpp"
#include "backends/local/process.hpp"
#include "backends/local/steps.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include <sallyport/lease_clock.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sallyport::backends::local {

/// The processes behind one client of the store.
/// Thread safety: all members are const.
class peer {
 public:
  explicit peer(const client_record& who) : process_(who.process), companion_(who.companion) {}

  [[nodiscard]] bool dead() const noexcept {
    return process_.state() == process_state::dead && companion_.state() == process_state::dead;
  }
  /// False: the kernel gave no handle of one of them. Worth trying again.
  [[nodiscard]] bool knowable() const noexcept {
    return process_.state() != process_state::unknown &&
           companion_.state() != process_state::unknown;
  }
  [[nodiscard]] int process_descriptor() const noexcept { return process_.descriptor_number(); }
  [[nodiscard]] int companion_descriptor() const noexcept { return companion_.descriptor_number(); }

 private:
  watched_process process_;
  watched_process companion_;
};

/// One process's view of a store, shared by its clients.
/// Thread safety: all members.
class local_store final : public liveness {
 public:
  /// The store that this process has open at this place, or opens now.
  static base::result<std::shared_ptr<local_store>> find_or_open(const store_address& address);

  /// Use find_or_open.
  local_store(attachment held, std::string host);
  ~local_store() override;

  /// Runs operate(lock_rules&) in one transaction and commits it; then tells the clients that are
  /// to hear of it, but for `self`, whose notices are appended to `own`; then goes on with the
  /// queues that it left unserved, until `answer_by`. A failure means that nothing happened.
  template <class Operate>
  auto transact(time_point answer_by, client_number self, std::vector<notice>& own, Operate operate)
      -> base::result<std::invoke_result_t<Operate&, lock_rules&>>;

  /// The client's processes; null: the client is gone.
  std::shared_ptr<const peer> find_peer(client_number who) SALLYPORT_EXCLUDES(mutex_);
  /// Puts a client on record. Then looks at a few others and buries the dead among them: those whom
  /// nobody waits for. That is housekeeping: what cannot be done shortly is left to the next.
  base::result<client_number> add_client(const client_record& who, std::string_view label,
                                         number_slot slot = {}) SALLYPORT_EXCLUDES(mutex_);
  /// Takes a client without contenders off the record.
  void remove_client(client_number who);
  /// Removes what a client left that has died or was closed, whoever noticed. Whom it could not
  /// bury in time, a later client buries when it opens.
  void bury(client_number who, std::chrono::milliseconds patience) SALLYPORT_EXCLUDES(mutex_);
  /// The processes of this client have ended: buries it, unless it had closed before.
  void peer_ended(client_number who) SALLYPORT_EXCLUDES(mutex_);

  [[nodiscard]] int folder() const noexcept { return held_.where.folder.number(); }
  [[nodiscard]] mode_t file_mode() const noexcept { return held_.where.file_mode; }
  [[nodiscard]] const std::string& path() const noexcept { return held_.where.path; }
  [[nodiscard]] pipes pipes_of_clients() const noexcept { return pipes_; }
  /// Names the token space.
  [[nodiscard]] const std::string& id() const noexcept { return id_; }

  // liveness; called inside the gate
  bool dead(client_number who, table& inside) override SALLYPORT_EXCLUDES(mutex_);

  /// How long a caller waits for its turn when nothing else bounds it. In a crowd of a thousand
  /// processes on two cores a turn may take seconds to come.
  static constexpr std::chrono::seconds patience_in_a_crowd{10};
  /// The same where waiting is of no use while a stopped process is inside.
  static constexpr std::chrono::seconds patience_with_the_stopped{2};
  /// How long housekeeping waits for its turn: the dead can wait longer than the living.
  static constexpr std::chrono::milliseconds burial_patience{20};

 private:
  /// Each costs a descriptor or two, of which the program may have few.
  static constexpr std::size_t most_peers_known = 128;

  /// Leaves the gate when the transaction is over, however it ends.
  struct gate_turn {
    gate& way_in;
    ~gate_turn() { way_in.leave(); }
  };

  /// What is to be done after a transaction.
  struct aftermath {
    bool out_of_room = false;  ///< it was not committed because the file is full
    bool ask_again = false;
    std::vector<std::string> unserved{};
  };

  template <class Operate>
  auto transact_once(time_point answer_by, std::vector<notice>& notices, aftermath& left,
                     Operate& operate) -> base::result<std::invoke_result_t<Operate&, lock_rules&>>;
  /// In transactions of its own: in between others have their turn.
  void serve_on(std::vector<std::string> names, time_point until, client_number self,
                std::vector<notice>& own) SALLYPORT_EXCLUDES(mutex_);
  void distribute(std::vector<notice>& all, client_number self, std::vector<notice>& own)
      SALLYPORT_EXCLUDES(mutex_);
  void sweep_everything(std::chrono::milliseconds patience);
  void forget_peer(client_number who) SALLYPORT_EXCLUDES(mutex_);

  attachment held_;
  const pipes pipes_;
  const std::string host_;
  const std::string id_;

  base::mutex mutex_;
  std::unordered_map<client_number, std::shared_ptr<const peer>> peers_
      SALLYPORT_GUARDED_BY(mutex_);
  outboxes out_ SALLYPORT_GUARDED_BY(mutex_);
};

template <class Operate>
auto local_store::transact_once(time_point answer_by, std::vector<notice>& notices, aftermath& left,
                                Operate& operate)
    -> base::result<std::invoke_result_t<Operate&, lock_rules&>> {
  if (auto entered = held_.way_in->enter(answer_by); !entered) {
    return tl::unexpected(entered.error());
  }
  const gate_turn turn{*held_.way_in};
  reached(step::inside_the_gate);
  lmdb_table records(*held_.file);
  reached(step::transaction_begun);
  // The time is read inside, so that the records see it pass in the order of the transactions.
  lock_rules rules({records, *this, *held_.tokens, lease_clock::now(), notices, host_});
  auto answer = operate(rules);
  rules.finish();
  reached(step::written);
  if (rules.changed_anything() || records.failed()) {
    if (auto committed = records.commit(); !committed) {
      left.out_of_room = records.out_of_room();
      if (records.file_spoiled()) held_.way_in->mark_damaged();
      return tl::unexpected(committed.error());
    }
  }
  reached(step::committed);
  left.ask_again = rules.ask_again();
  left.unserved = rules.unserved();
  return answer;
}

template <class Operate>
auto local_store::transact(time_point answer_by, client_number self, std::vector<notice>& own,
                           Operate operate)
    -> base::result<std::invoke_result_t<Operate&, lock_rules&>> {
  for (;;) {
    std::vector<notice> notices;
    aftermath left;
    auto answer = transact_once(answer_by, notices, left, operate);
    if (!answer && left.out_of_room) {
      // Perhaps the room is taken by the dead.
      sweep_everything(patience_with_the_stopped);
      notices.clear();
      answer = transact_once(answer_by, notices, left, operate);
    }
    if (!answer) return answer;
    reached(step::gate_left);
    if (!notices.empty()) distribute(notices, self, own);
    if (left.unserved.empty()) return answer;
    serve_on(std::move(left.unserved), answer_by, self, own);
    if (!left.ask_again) return answer;
  }
}

}  // namespace sallyport::backends::local
