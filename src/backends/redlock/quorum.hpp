#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/told.hpp"
#include "backends/redlock/contender.hpp"
#include "backends/redlock/membership.hpp"
#include "backends/redlock/speech.hpp"
#include "base/random.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

namespace sallyport::backends::redlock {

/// Why a command was sent: comes back with its answer.
struct errand {
  enum class kind : std::uint8_t {
    bid,
    extend,
    raise,
    enqueue,
    leave,
    heal,
    settle,  ///< a vote that may have been left behind is given back
    adopt,
    read_mark,
    read_clock,
    read_counter,
    look  ///< is it there, with the mark that was seen?
  };
  kind what = kind::bid;
  node_number node = 0;
  backend_api::holder_id holder{};
  std::uint64_t round = 0;  ///< of the contender; for `settle` and what is read their own
  std::string id;           ///< of the vote that it is about
};

struct delivery {
  redis::wire_command command;
  errand why;
  time_point answer_by;
  std::string mark;  ///< what the command expects the node's mark to be; empty: it does not matter
};

// What the engine is told.
using backend_api::acquire_told;
using backend_api::entered_told;
using backend_api::leave_told;
using backend_api::lost_told;
using backend_api::reconnected_told;
using backend_api::renew_told;

using quorum_action = std::variant<delivery, acquire_told, renew_told, leave_told, entered_told,
                                   lost_told, reconnected_told>;

/// To be carried out in this order.
struct quorum_actions {
  std::vector<quorum_action> all;
  bool listen = false;  ///< somebody waits: notices are to be heard from now on
  bool reach = false;   ///< somebody needs the nodes that are away: try them again now
};

/// A lock that a majority of independent nodes gives, for all contenders of one client: requests of
/// the engine and answers of nodes in, commands and answers out. Keeps the rules of docs/redlock.md:
///   - every question goes to all nodes that may vote, at once, and a majority of answers decides;
///   - every bid has an id of its own and is sent to a node once;
///   - what did not win is given back everywhere before the engine hears of it;
///   - a release hands its votes over, once, under a nonce of its own;
///   - a deadline counts from before the first command of the round that won.
/// Pure: no clock, no connection, no thread. Thread safety: none.
/// Invariant: every vote that this client may have, and that no contender holds, is given back again
/// and again until its lease has passed.
class quorum {
 public:
  struct settings {
    membership::settings nodes;
    std::function<backend_api::holder_id()> fresh_id;
    std::uint64_t seed = 0;  ///< for jitter
    /// Nobody stands in a line before the nodes' notices are heard, or this long has passed: who is
    /// not heard loses its place. Zero: hears from the beginning.
    duration hearing_patience{};
  };

  quorum(settings how, const speech& words);

  void acquire(const backend_api::acquire_request& request, time_point now, quorum_actions& out);
  /// Also the claim of a waiter: whoever holds nothing looks whether it may.
  void renew(const backend_api::renew_request& request, time_point now, quorum_actions& out);
  void leave(const backend_api::leave_request& request, bool withdraw, time_point now,
             quorum_actions& out);

  void answered(const errand& why, base::result<reply> said, time_point now, quorum_actions& out);
  /// Whether a command that has waited for a connection may be said over the new one: the node may
  /// have restarted in between, and come back with less than it had.
  [[nodiscard]] bool still_meant(const errand& why, const std::string& mark) const;
  /// A message on this client's channel.
  void heard(node_number node, std::string_view message, time_point now, quorum_actions& out);
  void node_up(node_number node, node_facts facts, time_point now, quorum_actions& out);
  void node_down(node_number node, base::failure why, time_point now, quorum_actions& out);
  /// Whether this node's notices come.
  void node_heard(node_number node, bool is_heard) noexcept;
  void on_timer(time_point now, quorum_actions& out);
  [[nodiscard]] time_point wake_at() const;

  [[nodiscard]] const membership& nodes() const noexcept { return members_; }
  /// Nobody waits, holds or leaves, and nothing is to be given back.
  [[nodiscard]] bool idle() const noexcept;

 private:
  /// A vote that may be left somewhere.
  struct debt {
    std::string name;
    std::string contender;
    std::string id;
    bool withdraw = false;
    duration pause{};
    time_point next{};
    time_point until{};  ///< what is executed later than this is left to lapse
    duration life{};     ///< how long it would take to
    bool paid = false;   ///< also at the end
  };

  // Rounds.
  void look(contender& who, time_point now, quorum_actions& out);
  void bid(contender& who, time_point now, quorum_actions& out);
  void bid_answered(contender& who, const errand& why, base::result<vote> said, time_point now,
                    quorum_actions& out);
  /// A node says that somebody's release gave its vote to this contender.
  void offered(contender& who, node_number node, const std::string& nonce, time_point now,
               quorum_actions& out);
  /// Of what was handed over to it, under which nonce most.
  void claim_best(contender& who, time_point now, quorum_actions& out);
  void claim(contender& who, const std::string& nonce, time_point now, quorum_actions& out);
  void ask_for_claim(contender& who, node_set nodes, time_point now, quorum_actions& out);
  void ask_the_rest(contender& who, time_point now, quorum_actions& out);
  void renew_held(contender& who, std::uint32_t tokens, time_point now, quorum_actions& out);
  void extend_answered(contender& who, const errand& why, base::result<vote> said, time_point now,
                       quorum_actions& out);
  void advance(contender& who, time_point now, quorum_actions& out);
  void won(contender& who, time_point now, quorum_actions& out);
  void renewed(contender& who, time_point now, quorum_actions& out);
  [[nodiscard]] bool reachability_is_known(const contender& who) const;
  void lost(contender& who, time_point now, quorum_actions& out);
  /// Nodes were lost and are coming back: asks them again, or waits for them. False: that is no use.
  bool try_again(contender& who, time_point now, quorum_actions& out);
  void resume_postponed(time_point now, quorum_actions& out);
  void renewal_lost(contender& who, time_point now, quorum_actions& out);
  void heal(contender& who, time_point now, quorum_actions& out);
  void raise_answered(contender& who, const errand& why, const base::result<vote>& said,
                      time_point now, quorum_actions& out);
  void heal_answered(contender& who, const errand& why, const base::result<vote>& said,
                     time_point now, quorum_actions& out);
  void enroll(contender& who, time_point now, quorum_actions& out);
  void enqueue_answered(contender& who, const errand& why, base::result<vote> said, time_point now,
                        quorum_actions& out);
  void enrolled(contender& who, time_point now, quorum_actions& out);
  [[nodiscard]] bool would_be_heard(time_point now) const;
  [[nodiscard]] duration ask_again_after(const contender& who);
  void leave_answered(contender& who, const errand& why, base::result<bool> said, time_point now,
                      quorum_actions& out);
  void conclude_leave(contender& who, time_point now, quorum_actions& out);

  // Answers to the engine.
  void answer_won(contender& who, quorum_actions& out);
  void answer_waiting(contender& who, duration ask_again, quorum_actions& out);
  static void fail_questions(contender& who, const base::failure& why, quorum_actions& out);
  /// Forgets the contender, too, if nothing of it is left.
  void answer_failed(contender& who, const base::failure& why, quorum_actions& out);

  // Votes that are not wanted.
  void give_back(contender& who, const std::string& id, time_point now, quorum_actions& out);
  void give_back_at(node_number node, contender& who, const std::string& id, time_point now,
                    quorum_actions& out);
  /// A vote of which a connection that broke may yet make one.
  [[nodiscard]] static debt late_vote(const contender& who, const std::string& id, time_point now);
  /// Likewise a ticket, and what is handed over to whoever has it.
  [[nodiscard]] static debt late_ticket(const contender& who, time_point now);
  void ticket_in_doubt(contender& who, node_number node, time_point now);
  void settled(const errand& why, bool heard);
  void owe(node_number node, debt what);
  void pay(node_number node, time_point now, quorum_actions& out);

  void follow(const membership::actions& todo, time_point now, quorum_actions& out);
  void membership_answered(const errand& why, const base::result<reply>& said, time_point now,
                           quorum_actions& out);
  void welcome_new_voters(node_set before, time_point now, quorum_actions& out);
  void mark_differs(node_number node, const vote& said, time_point now, quorum_actions& out);
  [[nodiscard]] base::failure too_few(const contender& who, time_point now) const;
  /// Why no node need be asked.
  [[nodiscard]] std::optional<base::failure> hindrance(const contender& who, time_point now) const;
  [[nodiscard]] contender* find(const backend_api::holder_id& who);
  [[nodiscard]] time_point step_by(const contender& who, time_point now) const;
  void send(node_number node, redis::wire_command command, errand why, time_point by,
            quorum_actions& out) const;
  [[nodiscard]] std::string fresh() const;
  [[nodiscard]] unsigned size() const noexcept { return members_.size(); }
  [[nodiscard]] unsigned listed() const noexcept { return members_.listed(); }
  [[nodiscard]] unsigned majority() const noexcept { return members_.majority(); }

  const speech& speech_;
  const std::function<backend_api::holder_id()> fresh_id_;
  membership members_;
  base::random random_;
  std::unordered_map<backend_api::holder_id, contender> contenders_;
  std::unordered_map<std::uint64_t, debt> settling_;      // votes given back, not yet answered
  std::vector<std::deque<debt>> debts_;                   // by node
  std::vector<time_point> next_payment_;                  // likewise; never later than any debt's
  std::unordered_set<backend_api::holder_id> claiming_;   // may have to ask the rest of the nodes
  std::unordered_set<backend_api::holder_id> postponed_;  // wait for nodes to come back
  time_point welcomed_at_ = time_point::min();            // when the newest voter came
  std::uint64_t last_round_ = 0;
  const duration hearing_patience_;
  node_set heard_ = 0;                   // whose notices come
  std::optional<time_point> listening_;  // since when somebody wants to hear
};

}  // namespace sallyport::backends::redlock
