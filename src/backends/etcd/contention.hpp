#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/told.hpp"
#include "backends/etcd/contender.hpp"
#include "backends/etcd/layout.hpp"
#include "backends/etcd/speech.hpp"

#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

namespace sallyport::backends::etcd {

/// Names a transaction that is under way.
using errand_number = std::uint64_t;

// What is to be done.
struct txn_order {
  errand_number errand = 0;
  txn what;
  time_point answer_by;
};
struct grant_order {
  lease_id lease = 0;
  std::int64_t seconds = 0;
  time_point answer_by;
};
struct revoke_order {
  lease_id lease = 0;
};
struct keep_alive_order {
  lease_id lease = 0;
};
struct watch_order {
  watch_number watch = 0;
  std::string key{};
  std::string end{};
  bool puts = false;  ///< else only deletions
};
struct unwatch_order {
  watch_number watch = 0;
};
/// The member that we are connected to does not answer: try another one.
struct doubt_order {};

// What is to be told.
using backend_api::acquire_told;
using backend_api::changed_told;
using backend_api::disconnected_told;
using backend_api::downgrade_told;
using backend_api::entered_told;
using backend_api::leave_told;
using backend_api::lost_told;
using backend_api::reconnected_told;
using backend_api::renew_told;
using backend_api::value_told;

using action =
    std::variant<txn_order, grant_order, revoke_order, keep_alive_order, watch_order, unwatch_order,
                 doubt_order, acquire_told, renew_told, downgrade_told, leave_told, value_told,
                 entered_told, lost_told, changed_told, reconnected_told, disconnected_told>;
using actions = std::vector<action>;

/// All contenders of one client and the leases that their keys hang on: requests, answers and events
/// in, orders and answers out. Pure: it reads no clock and knows no library.
/// Thread safety: none.
/// Invariants: (1) Of one contender, one transaction is under way at most, so its steps take effect
/// in their order. (2) Whoever is told to be in was confirmed by the store, in an answer whose
/// revision is its token. (3) A lease is trusted until the sending of its last proven keep-alive plus
/// its length. (4) A lease on which a put may still be executed late takes in nobody new, and is
/// revoked when its last member has left: after that nothing can be put on it any more. (5) Whoever
/// was told to leave does, however long that takes: others keep the lease alive that its key hangs on.
class contention {
 public:
  struct settings {
    layout keys;
    backend_api::owner_info owner;
    std::function<lease_id()> fresh_lease;  ///< random, 63 bits, above zero
    std::function<std::int64_t()> wall_ms;  ///< for people
  };

  explicit contention(settings how) : how_(std::move(how)) {}

  // requests
  void acquire(const backend_api::acquire_request& request, time_point now, actions& out);
  void renew(const backend_api::renew_request& request, time_point now, actions& out);
  void leave(const backend_api::leave_request& request, time_point now, actions& out);
  void downgrade(const backend_api::renew_request& request, time_point now, actions& out);
  /// Answered by value_told with this ticket.
  void set_value(const backend_api::renew_request& request, std::string_view value,
                 std::uint64_t ticket, time_point now, actions& out);
  void watch(const lock_name& name, bool on, actions& out);

  // answers
  void txn_answered(errand_number errand, const reply<txn_answer>& said, time_point now,
                    actions& out);
  /// The seconds that the store gave.
  void lease_granted(lease_id lease, const reply<std::int64_t>& said, time_point now, actions& out);
  /// `seconds` 0: there is no such lease.
  void kept_alive(lease_id lease, std::int64_t seconds, std::uint64_t term, time_point now,
                  actions& out);
  /// Keep-alives that were on their way are lost, and answers to them will not come any more. Unless
  /// that is trouble, core need not hear of it; nor of watches.
  void keep_alives_broken(time_point now, actions& out, bool trouble = true);

  // events
  void watch_began(watch_number watch, revision at, time_point now, actions& out);
  void watch_said(watch_number watch, std::span<const key_event> events, time_point now,
                  actions& out);
  void watch_ended(watch_number watch, time_point now, actions& out);
  /// All watches are gone; orders for those that are still wanted follow.
  void watches_broken(time_point now, actions& out, bool trouble = true);
  /// Events come again.
  void watches_back(actions& out);

  void on_timer(time_point now, actions& out);
  [[nodiscard]] time_point wake_at();
  /// Answers whatever is under way with outcome_unknown, and revokes leases that nobody needs.
  void close(actions& out);

  /// The key of one who is in; nullopt: nobody of this id is.
  [[nodiscard]] std::optional<store_entry> grant_of(const backend_api::holder_id& who) const;
  [[nodiscard]] std::size_t contenders() const noexcept { return contenders_.size(); }
  [[nodiscard]] std::size_t leases() const noexcept { return leases_.size(); }

 private:
  using phase = contender::phase;
  using step = contender::step;
  enum class alarm : std::uint8_t { answers, own_watch, second_look, leaving, lease, names };
  struct timer {
    alarm what = alarm::answers;
    backend_api::holder_id holder{};
    lease_id lease = 0;
  };
  struct errand {
    backend_api::holder_id holder{};             // of a contender's step
    lease_id lease = 0;                          // else of a lease's round
    std::vector<backend_api::holder_id> read{};  // whose keys it looks at, in order
    std::size_t then = 0;                        // how many answers it has to have
    std::size_t otherwise = 0;
  };
  struct watched_name {
    watch_number watch = 0;
    bool was_lost = false;
  };

  contender* find(const backend_api::holder_id& who);
  contender& find_or_make(const backend_api::acquire_request& request);
  /// Does the next thing for this contender, if nothing is under way. May forget it.
  void advance(contender& who, time_point now, actions& out);
  bool advance_inside(contender& who, time_point now, actions& out);
  void forget(contender& who, time_point now, actions& out);
  void set_timer(time_point when, timer what);
  void watch_name(const lock_name& name, watched_name& state, actions& out);
  /// A stream has broken: if anybody is in, core is told.
  void tell_disconnected(actions& out) const;
  void overdue(contender& who, time_point now, actions& out);

  // steps, contention_steps.cpp
  void send(contender& who, step what, txn order, time_point answer_by, actions& out);
  void enter(contender& who, time_point now, actions& out);
  void survey(contender& who, revision up_to, time_point now, actions& out);
  /// Puts its key, although others are there.
  void join(contender& who, std::uint32_t permits, time_point now, actions& out);
  void look(contender& who, time_point now, actions& out);
  void list(contender& who, revision up_to, time_point now, actions& out);
  void confirm(contender& who, time_point now, actions& out);
  void put_description(contender& who, step what, time_point answer_by, actions& out);
  void proclaim(contender& who, actions& out);
  void go(contender& who, step what, time_point answer_by, actions& out);
  [[nodiscard]] std::vector<condition> mine(const contender& who) const;
  void append_puts(const contender& who, bool inside, bool draws, std::vector<operation>& to) const;
  void append_first_puts(const contender& who, bool inside, std::vector<operation>& to) const;
  [[nodiscard]] time_point patience(const contender& who, time_point now) const;

  // their answers, contention_answers.cpp
  void stepped(contender& who, const reply<txn_answer>& said, time_point now, actions& out);
  void failed(contender& who, step what, const reply<txn_answer>& said, time_point now,
              actions& out);
  void tried(contender& who, const txn_answer& said, time_point now, actions& out);
  void surveyed(contender& who, const operation_answer& page, time_point now, actions& out);
  void entered(contender& who, const txn_answer& said, time_point now, actions& out);
  void looked(contender& who, const txn_answer& said, time_point now, actions& out);
  void listed(contender& who, const txn_answer& said, time_point now, actions& out);
  /// Adds a page of those before it and says whether it was the last.
  bool take_page(contender& who, const operation_answer& page);
  void judge(contender& who, bool complete, revision at, bool fresh, time_point now, actions& out);
  void wait(contender& who, const standing& where, revision at, actions& out);
  void hold(contender& who, revision token, time_point now, actions& out);
  /// Its place in the line is gone.
  void fall_out(contender& who);
  void lose(contender& who, actions& out);
  /// Unless the lease was kept alive just now, much of it has to be left: else that is done first.
  void answer_held(contender& who, bool just_kept, time_point now, actions& out);
  void left(contender& who, bool was_there, time_point now, actions& out);
  /// Nothing is there under its key, nor can anything come: the next contender may have its number.
  void free_key(const contender& who);
  void drop_watch(contender& who, actions& out);
  void watch_for(contender& who, actions& out);

  // leases, contention_leases.cpp
  void attach(contender& who, time_point now, time_point answer_by, actions& out);
  void detach(contender& who, time_point now, actions& out);
  /// A key of its own, on the lease that it has.
  void choose_key(contender& who);
  lease_state* lease_of(const contender& who);
  [[nodiscard]] duration remaining(const contender& who, time_point since);
  [[nodiscard]] bool fresh_enough(const contender& who, time_point now);
  void keep(lease_id id, time_point now, actions& out);
  void read_keys(lease_id id, time_point now, actions& out);
  void round_read(lease_id id, const errand& what, const reply<txn_answer>& said, time_point now,
                  actions& out);
  void end_round(lease_id id, time_point now, actions& out);
  void lease_ended(lease_id id, time_point now, actions& out);
  void retire(lease_id id, std::string late_key);
  void revoke(lease_id id, actions& out);
  void lease_due(lease_id id, time_point now, actions& out);

  settings how_;
  std::unordered_map<backend_api::holder_id, contender> contenders_;
  std::unordered_map<lease_id, lease_state> leases_;
  std::map<duration, lease_id> shared_;  // the one that takes new contenders in, by its length
  std::unordered_map<errand_number, errand> errands_;
  std::unordered_map<watch_number, backend_api::holder_id> watches_;  // of contenders
  std::map<lock_name, watched_name> names_;
  std::unordered_map<watch_number, lock_name> name_watches_;
  std::multimap<time_point, timer> timers_;
  errand_number next_errand_ = 1;
  watch_number next_watch_ = 1;
  std::uint64_t next_key_ = 1;
  std::vector<std::uint64_t> free_keys_;  // numbers below next_key_ that may be used again
};

/// What a failure of the store means to core.
[[nodiscard]] base::failure failure_of(trouble why, const std::string& text);
/// The same for an answer: what an earlier try may have done is not known, whatever the last one says.
template <class T>
[[nodiscard]] base::failure failure_of(const reply<T>& said) {
  return failure_of(said.doubtful ? trouble::unknown : said.why, said.text);
}

}  // namespace sallyport::backends::etcd
