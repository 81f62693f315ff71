#pragma once

#include "backend_api/backend.hpp"
#include "base/mutex.hpp"
#include "base/random.hpp"
#include "core/acquire_attempt.hpp"
#include "core/farewell.hpp"
#include "core/lease_keeper.hpp"
#include "core/local_turns.hpp"
#include "runtime/audience.hpp"
#include "runtime/environment.hpp"
#include "runtime/lease_record.hpp"
#include "runtime/lock_spec.hpp"
#include "runtime/timer_queue.hpp"
#include <sallyport/observer.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::runtime {

struct lane;
struct outbox;

/// Nobody else's fault: the wait's deadline came, or the caller cancelled.
struct not_acquired {
  bool cancelled = false;
};

/// The lease; "somebody else has it"; or why the store could not say.
using acquire_result = std::variant<not_acquired, std::shared_ptr<lease_record>, base::failure>;

/// One call that wants a lock. The caller owns it and keeps it alive until finished() was called.
class acquire_waiter : public timer, public core::turn_taker {
 public:
  acquire_waiter() : timer(timer::kind::waiter) {}
  virtual ~acquire_waiter() = default;
  /// The call is over and outcome() is final. Called exactly once, from any thread, without any
  /// mutex.
  virtual void finished() noexcept = 0;

  [[nodiscard]] acquire_result& outcome() noexcept { return outcome_; }
  /// Set by a caller that blocks in backend::drive until it is finished.
  bool drives = false;

 private:
  friend class engine;
  acquire_result outcome_;
  party* solo_ = nullptr;  // readers and permits: its own contender
  lane* lane_ = nullptr;   // exclusive: the queue it stands in
  time_point since_{};
  std::shared_ptr<const lock_spec> spec_;
  std::shared_ptr<const std::string> value_;  // election; null: none
  std::shared_ptr<lease_record> record_;      // of the turn it waits for
  bool may_wait_ = false;
  bool under_way_ = false;
};

/// One call that waits for the store's word on a release or a downgrade; ownership as for
/// acquire_waiter.
class word_waiter {
 public:
  word_waiter() = default;
  word_waiter(const word_waiter&) = delete;
  word_waiter& operator=(const word_waiter&) = delete;
  virtual ~word_waiter() = default;
  virtual void finished() noexcept = 0;

  bool drives = false;  ///< as in acquire_waiter
  /// For releases.
  core::release_outcome released = core::release_outcome::unknown;
  fencing_token token;  ///< of the turn that ends; set by engine::release()
  duration held_for{};  ///< the turn's length; set by engine::release()
  /// For downgrades: an error, or success.
  std::optional<base::failure> failed;
};

/// Why an observer is told of something.
struct event_cause {
  event_reason reason = event_reason::none;
  const base::failure* trouble = nullptr;  ///< the store's, if it is in any
};

/// Joins the machines of core to a backend: events in, actions out, for all locks of one client. It
/// has no thread: users' threads, the backend's and the watchdog's call it, and the simulator calls
/// it from one.
/// Thread safety: every member. Never calls out (backend, environment, waiters) with its mutex
/// held.
/// Invariants: (1) every waiter is finished exactly once. (2) a contender's holder id is used for
/// one attempt only. (3) whatever may be left in the store has a farewell that cleans it up.
class engine final : public backend_api::events {
 public:
  struct settings {
    std::uint32_t max_waiters_per_name = 100'000;
    std::shared_ptr<const audience> observers;  ///< null: none
    std::uint64_t seed = 0;                     ///< for jitter
  };

  engine(environment& world, settings how);
  ~engine() override;

  /// REQUIRES: called once, before anything else. The backend must outlive all calls into the
  /// engine.
  void attach(backend_api::backend& store);

  /// Wants the lock. `wait_until` in the past or now: one try, no queue. Fails with
  /// not_enough_memory before anything is sent; a backend's shortage ends in the same, and what it may
  /// have left is withdrawn.
  void acquire(acquire_waiter& caller, const std::shared_ptr<const lock_spec>& spec,
               time_point wait_until, std::string_view value = {});
  /// Ends the wait, if it has not ended; the caller is finished as "cancelled".
  void cancel(acquire_waiter& caller);
  /// The same; the caller is finished with this failure.
  void give_up(acquire_waiter& caller, base::failure why);
  /// Ends the turn. `caller` (may be null) hears the store's word, or "released" when the turn
  /// passed on locally.
  void release(lease_record& turn, word_waiter* caller);
  /// Exclusive to shared, for a shared_mutex; fails with lease_lost when the lease ended.
  void downgrade(lease_record& turn, word_waiter& caller);
  /// Election: replaces what the entry says.
  void set_value(lease_record& turn, std::string_view value, backend_api::completion<bool> done);

  /// The caller's clock has passed the turn's deadline: settles, once for all observers, whether
  /// the turn is lost or was renewed just in time.
  void settle(lease_record& turn);
  /// For whoever needs the whole lease confirmed: a claim that is kept back is sent now. `caller` is
  /// finished when the lease is claimed, or has ended; one caller a turn at a time.
  void claim_now(lease_record& turn, word_waiter& caller);
  /// The stop token that fires when the turn is lost.
  [[nodiscard]] std::stop_token lost_token(lease_record& turn);
  /// Under which id the turn's grant is known to the store; nullopt: the turn has ended.
  [[nodiscard]] std::optional<backend_api::holder_id> holder_of(const lease_record& turn) const;
  /// Whether a caller of this client has its turn of that name now.
  [[nodiscard]] bool holds(lock_kind kind, const lock_name& name) const;
  /// Whether no contender of this client is left in the store, as far as it knows.
  [[nodiscard]] bool quiet() const;

  /// The client is about to close: every farewell that waits for its time is said now. `caller` is
  /// finished when the store has heard each of them once, or two tries of it have failed: then its
  /// remains are left to lapse. REQUIRES: called once, with nobody inside and nobody waiting.
  void depart(word_waiter& caller);

  /// Does what is due; called at the times given to environment::wake_at.
  void run_due();

  // backend_api::events
  void acquire_answered(const backend_api::holder_id& who,
                        base::result<backend_api::acquire_answer> answer) override;
  void renewals_answered(std::span<backend_api::renew_outcome> outcomes) override;
  void leave_answered(const backend_api::holder_id& who,
                      base::result<backend_api::leave_answer> answer) override;
  void downgrade_answered(const backend_api::holder_id& who,
                          base::result<backend_api::renew_answer> answer) override;
  void granted_notice(const backend_api::holder_id& who,
                      std::optional<backend_api::granted> grant) override;
  void lost_notice(const backend_api::holder_id& who) override;
  void release_wanted_notice(const backend_api::holder_id& who) override;
  void changed_notice(const lock_name& name) override;
  void reconnected() override;
  void disconnected() override;

  /// A request that did not come from the engine was answered: null, or what it failed with. Counts
  /// for what observers hear of the store.
  void store_heard(const base::failure* trouble);

  /// Called (through environment::tell) for every changed_notice; for elections' observers.
  void on_changed(std::function<void(const lock_name&)> callback);

 private:
  /// A lane's name: points to the lane's own spec, compared by kind and name.
  struct lane_key {
    const lock_spec* spec;
    friend bool operator==(const lane_key& a, const lane_key& b) {
      return a.spec->kind == b.spec->kind && a.spec->name == b.spec->name;
    }
  };
  struct lane_hash {
    std::size_t operator()(const lane_key& key) const noexcept {
      return std::hash<std::string_view>{}(key.spec->name.text()) ^
             static_cast<std::size_t>(key.spec->kind);
    }
  };

  /// All that acquire() does under the mutex. Throws std::bad_alloc: then nothing happened.
  void admit(acquire_waiter& caller, time_point wait_until, std::string_view value, outbox& out)
      SALLYPORT_REQUIRES(mutex_);
  /// The backend ran out of memory inside the call: counts as the answer, unless there was one.
  void acquire_unheard(const backend_api::holder_id& who);

  // Carrying out what the machines say; all under the mutex, all effects into the outbox. None but
  // start_party (which throws std::bad_alloc, and then nothing happened) needs memory for one caller.
  party& start_party(const acquire_waiter& asker, bool may_wait) SALLYPORT_REQUIRES(mutex_);
  /// Starts a party for the lane's first caller; without memory for it the lane's callers fail.
  void ask_for(lane& where, const acquire_waiter& asker, bool may_wait, outbox& out)
      SALLYPORT_REQUIRES(mutex_);
  void follow(party& who, core::attempt_actions actions, outbox& out) SALLYPORT_REQUIRES(mutex_);
  /// `suspicion`: why the lease is suspect, if it is now.
  void follow(party& who, core::keeper_actions actions, outbox& out,
              event_reason suspicion = event_reason::not_renewed) SALLYPORT_REQUIRES(mutex_);
  /// All of them, in the same order on every library.
  [[nodiscard]] std::vector<party*> parties_in_order() SALLYPORT_REQUIRES(mutex_);
  /// `trouble`: what the farewell was answered with, if that is what these follow from.
  void follow(party& who, const core::farewell_actions& actions, outbox& out,
              const base::failure* trouble = nullptr) SALLYPORT_REQUIRES(mutex_);
  void follow(lane& where, core::turn_actions& actions, outbox& out,
              word_waiter* releaser = nullptr) SALLYPORT_REQUIRES(mutex_);
  void attempt_ended(party& who, core::attempt_outcome outcome, outbox& out)
      SALLYPORT_REQUIRES(mutex_);
  void give_turn(party& who, acquire_waiter& caller, core::turn_number turn, fencing_token token,
                 outbox& out) SALLYPORT_REQUIRES(mutex_);
  void part(party& who, core::farewell::kind how, word_waiter* releaser, outbox& out)
      SALLYPORT_REQUIRES(mutex_);
  void grant_lost(party& who, outbox& out) SALLYPORT_REQUIRES(mutex_);
  void end_claim(party& who, outbox& out) SALLYPORT_REQUIRES(mutex_);
  void await_no_more(party& who) SALLYPORT_REQUIRES(mutex_);
  void send_renewal(party& who, std::uint32_t token_count, outbox& out) SALLYPORT_REQUIRES(mutex_);
  void renewal_answered(backend_api::renew_outcome& outcome, outbox& out)
      SALLYPORT_REQUIRES(mutex_);
  void finish(acquire_waiter& caller, acquire_result outcome, outbox& out)
      SALLYPORT_REQUIRES(mutex_);
  void stop_waiting(acquire_waiter& caller, acquire_result outcome, outbox& out)
      SALLYPORT_REQUIRES(mutex_);
  /// What a caller is told whose time is up.
  [[nodiscard]] acquire_result result_of_waiting(const acquire_waiter& caller, outbox& out)
      SALLYPORT_REQUIRES(mutex_);
  void timer_due(timer& due, outbox& out) SALLYPORT_REQUIRES(mutex_);
  void rearm(party& who) SALLYPORT_REQUIRES(mutex_);
  void sweep(outbox& out) SALLYPORT_REQUIRES(mutex_);
  void close_books(outbox& out) SALLYPORT_REQUIRES(mutex_);
  [[nodiscard]] party* find(const backend_api::holder_id& who) SALLYPORT_REQUIRES(mutex_);
  void remember_late(const party& who) SALLYPORT_REQUIRES(mutex_);
  /// A notice for a contender that has ended: if it is remembered, whatever it holds is given back.
  void give_back_late_grant(const backend_api::holder_id& who, outbox& out)
      SALLYPORT_REQUIRES(mutex_);

  // For the observers; nothing happens when there are none.
  void note(outbox& out, void (observer::*what)(const lock_event&), const lock_spec& spec,
            fencing_token token, duration took = {}, const event_cause& cause = {})
      SALLYPORT_REQUIRES(mutex_);
  void note(outbox& out, void (observer::*what)(const store_event&), const base::failure& trouble,
            duration away) SALLYPORT_REQUIRES(mutex_);
  /// The store's word on a release; `trouble`: why it gave none.
  void note_release(const lock_spec& spec, const word_waiter& releaser,
                    const base::failure* trouble, outbox& out) SALLYPORT_REQUIRES(mutex_);
  /// A request was answered: null, or what it failed with. Says so when the store is away or back. A
  /// failure that says nothing of the store (it was not asked, or answered that it can't serve now) is
  /// neither.
  void store_heard(const base::failure* trouble, outbox& out) SALLYPORT_REQUIRES(mutex_);
  [[nodiscard]] event_cause cause_of_loss(const party& who, bool by_clock) const
      SALLYPORT_REQUIRES(mutex_);

  void perform(outbox& out) SALLYPORT_EXCLUDES(mutex_);

  // Constant after attach().
  environment& world_;
  const settings how_;
  backend_api::backend* store_ = nullptr;

  mutable base::mutex mutex_;
  base::random random_ SALLYPORT_GUARDED_BY(mutex_);
  std::unordered_map<backend_api::holder_id, party> parties_ SALLYPORT_GUARDED_BY(mutex_);
  std::unordered_map<lane_key, lane, lane_hash> lanes_ SALLYPORT_GUARDED_BY(mutex_);
  timer_queue timers_ SALLYPORT_GUARDED_BY(mutex_);
  time_point armed_for_ SALLYPORT_GUARDED_BY(mutex_) = time_point::max();
  std::uint32_t solo_waiters_ SALLYPORT_GUARDED_BY(mutex_) = 0;
  std::size_t callers_ SALLYPORT_GUARDED_BY(mutex_) = 0;  // calls of acquire() that are under way
  word_waiter* departing_ SALLYPORT_GUARDED_BY(mutex_) = nullptr;
  std::size_t awaited_ SALLYPORT_GUARDED_BY(mutex_) = 0;  // parties that departing_ waits for
  std::function<void(const lock_name&)> changed_callback_ SALLYPORT_GUARDED_BY(mutex_);

  /// The store can't be reached since then, as far as requests tell; only kept for observers.
  struct outage {
    time_point since;
    base::failure why;
  };
  std::optional<outage> outage_ SALLYPORT_GUARDED_BY(mutex_);

  /// A contender that has ended and had a request without answer. Such a request is executed within a
  /// lease, or never; a proxy may still keep it for longer, and then the store grants a lock to nobody.
  struct late_contender {
    backend_api::holder_id id;
    std::shared_ptr<const lock_spec> spec;
    lock_mode mode = lock_mode::exclusive;
  };
  static constexpr std::size_t max_late_contenders = 64;  // the oldest is forgotten first
  std::vector<late_contender> late_contenders_ SALLYPORT_GUARDED_BY(mutex_);
};

}  // namespace sallyport::runtime
