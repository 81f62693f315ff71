#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/told.hpp"
#include "backends/zookeeper/contender.hpp"

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

namespace sallyport::backends::zookeeper {

// What is to be done.
struct send_order {
  line_number line = 0;
  errand_number errand = 0;
  request what;
};
struct open_order {
  line_number line = 0;
  duration timeout{};
};
/// Ends the session, too, or (`abandon`) leaves it to itself.
struct close_order {
  line_number line = 0;
  bool abandon = false;
};
/// The server that we are connected to hangs: try another one. Else: if the line could never be
/// opened, try again.
struct doubt_order {
  line_number line = 0;
  bool hangs = false;
};

// What is to be told.
using backend_api::acquire_told;
using backend_api::changed_told;
using backend_api::downgrade_told;
using backend_api::entered_told;
using backend_api::leave_told;
using backend_api::lost_told;
using backend_api::reconnected_told;
using backend_api::renew_told;
using backend_api::value_told;
using backend_api::wanted_told;
/// The answers to contention::ask(), in its order; of those that did not come, why.
struct asked_told {
  std::uint64_t ticket = 0;
  std::vector<reply> answers;
};

using action = std::variant<send_order, open_order, close_order, doubt_order, acquire_told,
                            renew_told, downgrade_told, leave_told, value_told, asked_told,
                            entered_told, lost_told, changed_told, reconnected_told, wanted_told>;
/// To be carried out in this order.
using actions = std::vector<action>;

/// All contenders of one client and the sessions that their nodes belong to: requests, answers and
/// events in, orders and answers out. Pure: it reads no clock and knows no library.
/// Thread safety: none.
/// Invariants: (1) Of one contender, one step is under way at most, so its steps take effect in their
/// order. (2) Whoever is told to be in was seen as first by the store after its node was created, and
/// its token is no smaller than the number of any change before that look. (3) A session is trusted
/// until the sending of its last proof plus the line's span. (4) A node that may be there is removed
/// by its contender, however long that takes, or goes with the session.
class contention {
 public:
  struct settings {
    layout nodes;
    backend_api::owner_info owner;
    duration tick{};         ///< of the servers
    bool asks_name = false;  ///< a grant is told where the store's name is known, see name_wanted()
  };
  /// The store's name is to be asked for on this line.
  struct name_question {
    line_number line = 0;
    std::uint64_t trouble = 0;  ///< the line's, when it was asked
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
  void watch(const lock_name& name, bool on, time_point now, actions& out);
  /// Asks all of these, one after the other, on one connection; answered by asked_told.
  /// `line` 0: on any.
  void ask(line_number line, std::vector<request> all, std::uint64_t ticket, time_point answer_by,
           time_point now, actions& out);
  /// Whether the store's name has to be known first on the session that this acquire will use. A
  /// grant of a session whose name is not known, or is another one than that of the session which was
  /// asked last, is told as outcome_unknown: it may be that of another ensemble.
  std::optional<name_question> name_wanted(const backend_api::acquire_request& request,
                                           actions& out);
  void line_named(const name_question& asked, const std::string& name);
  /// A session for one thing that outlives whoever did it.
  line_number open_line(duration timeout, actions& out) { return open_new(timeout, true, out); }
  /// It is done: `keep_session` leaves the session to itself, which ends when its timeout has passed.
  void end_line(line_number line, bool keep_session, actions& out);

  // answers and events
  void answered(errand_number errand, reply said, time_point now, actions& out);
  void line_up(line_number line, session_id session, duration timeout, time_point now,
               actions& out);
  void line_down(line_number line);
  void line_ended(line_number line, time_point now, actions& out);
  /// A watch has fired: something happened to the node, or (`below`) to its children.
  void happened(const std::string& path, bool gone, bool below, time_point now, actions& out);

  [[nodiscard]] time_point wake_at() const noexcept;
  void on_timer(time_point now, actions& out);
  /// Answers everything that is under way, and forgets all.
  void close(actions& out);

  [[nodiscard]] std::size_t contenders() const noexcept { return contenders_.size(); }
  /// How many sessions a client has at most, for contenders with different lease lengths.
  static constexpr std::size_t most_lines = 6;

 private:
  using phase = contender::phase;
  using step = contender::step;

  /// Why a request was sent.
  struct errand {
    enum class kind : std::uint8_t { step, sync, question, name, ignored };
    kind why = kind::ignored;
    verb what = verb::sync;
    line_number line = 0;
    time_point sent;
    backend_api::holder_id holder{};
    std::uint64_t round = 0;  ///< of the contender, the sync or the question
    std::size_t index = 0;
    std::string name{};
  };
  enum class alarm : std::uint8_t { answers, sync, question, names, go_on, nudge };
  struct timer {
    alarm what = alarm::answers;
    backend_api::holder_id holder{};
    std::uint64_t number = 0;
  };
  struct outside_question {
    line_number line = 0;
    std::vector<request> all{};
    std::vector<reply> answers{};
    std::size_t open = 0;
    bool sent = false;
    time_point answer_by;
  };
  struct watched_name {
    bool armed = false;
    bool was_lost = false;
  };

  contender* find(const backend_api::holder_id& who);
  contender& find_or_make(const backend_api::acquire_request& request);
  void set_timer(time_point when, timer what) { timers_.emplace(when, what); }
  /// Answers of this contender are due then.
  void due_at(contender& who, time_point when);

  // contention_steps.cpp: what is begun
  void advance(contender& who, time_point now, actions& out);
  void advance_waiting(contender& who, time_point now, actions& out);
  void advance_held(contender& who, time_point now, actions& out);
  void begin(contender& who, step what, std::vector<request> all, time_point now, actions& out,
             std::size_t skipped = 0);
  bool reach(contender& who, time_point now, actions& out);
  void enter(contender& who, time_point now, actions& out);
  void create(contender& who, time_point now, actions& out);
  void take(contender& who, time_point now, actions& out);
  void judge_again(contender& who, time_point now, actions& out);
  void find_node(contender& who, own_node& which, time_point now, actions& out);
  void remove_nodes(contender& who, time_point now, actions& out);
  void write_card(contender& who, step why, std::uint64_t token, time_point now, actions& out);
  [[nodiscard]] std::string path_as_reader(const contender& who) const;
  [[nodiscard]] std::vector<request> folders_for(const contender& who, bool lease) const;

  // contention_answers.cpp: what came of it
  void step_done(contender& who, time_point now, actions& out);
  void step_failed(contender& who, const reply& why, time_point now, actions& out);
  [[nodiscard]] static const reply* refusal_that_matters(const contender& who);
  void step_refused(contender& who, const reply& why, time_point now, actions& out);
  void tried(contender& who, time_point now, actions& out);
  void entered(contender& who, time_point now, actions& out);
  void judged(contender& who, const reply& list, const reply* name_list, time_point now,
              actions& out);
  void probed(contender& who, time_point now, actions& out);
  void settle(contender& who, time_point now, actions& out);
  void watching_done(contender& who, time_point now, actions& out);
  void looked(contender& who, time_point now, actions& out);
  void taken(contender& who, time_point now, actions& out);
  void counted(contender& who, const reply& list, time_point now, actions& out);
  void read_done(contender& who, time_point now, actions& out);
  void written(contender& who, time_point now, actions& out);
  void downgraded(contender& who, time_point now, actions& out);
  void found(contender& who, time_point now, actions& out);
  void recognised(contender& who, time_point now, actions& out);
  void removed(contender& who, time_point now, actions& out);

  void won(contender& who, zxid seen, time_point now, actions& out);
  void tell_entry(contender& who, time_point now, actions& out);
  void answer_waiting(contender& who, actions& out);
  void answer_held(contender& who, time_point now, actions& out);
  void refuse(contender& who, base::result<backend_api::acquire_answer> verdict);
  void fall_out(contender& who);
  void lose(contender& who, actions& out);
  void forget(contender& who);
  void overdue(contender& who, time_point now, actions& out);

  // contention_lines.cpp
  line_state* line_of(const contender& who);
  [[nodiscard]] bool name_known(const line_state& line) const;
  void attach(contender& who, actions& out);
  line_number any_line(actions& out);
  line_number line_of_length(duration length, bool renewed, actions& out);
  line_number open_new(duration timeout, bool own, actions& out);
  errand_number send(errand why, request what, actions& out);
  void keep(line_number line, time_point now, actions& out);
  void nudge(line_number line, time_point now, actions& out);
  void proven(line_number line, time_point sent, time_point now, actions& out);
  [[nodiscard]] duration remaining(const contender& who, time_point since);
  [[nodiscard]] bool fresh(const contender& who, time_point now);
  void be_interested(const contender& who, const std::string& path);
  void be_no_longer_interested(const contender& who, const std::string& path);
  void send_question(std::uint64_t ticket, time_point now, actions& out);
  void question_over(std::uint64_t ticket, status why, actions& out);
  void arm(const lock_name& name, time_point now, actions& out);
  void name_answered(const errand& why, const reply& said, time_point now, actions& out);

  const settings how_;
  std::unordered_map<backend_api::holder_id, contender> contenders_;
  std::map<line_number, line_state> lines_;
  std::unordered_map<errand_number, errand> errands_;
  std::unordered_map<std::string, std::unordered_set<backend_api::holder_id>> interested_;
  std::unordered_map<std::uint64_t, outside_question> questions_;
  std::map<lock_name, watched_name> names_;
  std::unordered_set<std::string> known_folders_;  // children that are no contenders
  std::multimap<time_point, timer> timers_;
  errand_number next_errand_ = 1;
  line_number next_line_ = 1;
  std::string latest_name_;  // of the store, on whichever line
};

/// What the store's trouble is to core.
[[nodiscard]] base::failure failure_of(const reply& why);

}  // namespace sallyport::backends::zookeeper
