#include "sim/redlock_driver.hpp"

#include "backends/redis/words.hpp"
#include "base/planted.hpp"
#include "sim/process.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <variant>

namespace sallyport::sim {

using backend_api::holder_id;
using backend_api::leave_request;
using backend_api::renew_outcome;
using backend_api::renew_request;
using namespace backends::redlock;

namespace {

constexpr duration short_while = std::chrono::microseconds{200};
/// An answer is late when it comes this much after its time, on a process that runs.
constexpr duration answer_slack = std::chrono::milliseconds{1};
constexpr unsigned looks_before_late = 5;
/// As in the product.
constexpr duration hearing_patience = std::chrono::seconds{2};

base::failure simulated(errc why) { return {make_error_code(why), "simulated"}; }

/// What may be heard of a command that was executed: a script that failed behind a write, and a proxy
/// whose server answered too late.
backends::redis::reply draw_trouble(context& shared) {
  constexpr std::array<const char*, 4> words{
      "ERR Error running script: @user_script: 9: failed",
      "ERR The user executing the script can't run this command or subcommand script",
      "ERR Connection timed out", "upstream failure"};
  backends::redis::reply raw;
  raw.what = backends::redis::reply::kind::error;
  raw.text = words[shared.random.below(words.size())];
  return raw;
}

quorum::settings settings_for(context& shared, const std::vector<redlock_store::list_entry>& list) {
  quorum::settings how{.nodes = {.names = {},
                                 .initialise = false,
                                 .force = false,
                                 .max_lease = shared.plan.max_lease,
                                 .fresh_store = ""},
                       .fresh_id =
                           [&shared] {
                             const std::uint64_t high = shared.random();
                             return holder_id{high, shared.random()};
                           },
                       .seed = shared.random(),
                       .hearing_patience = hearing_patience};
  for (const auto& each : list) how.nodes.names.push_back(each.name);
  return how;
}

}  // namespace

/// One node as this process sees it: its connections, and what was sent over them and not answered.
class redlock_driver::member final : public link_user {
 public:
  member(redlock_driver& home, node_number number, std::size_t node, std::uint64_t client)
      : home_(home),
        number_(number),
        node_(home.nodes_.node(node)),
        link_(std::make_shared<redis_link>(home.shared_, node_, client, carriage::stream)) {
    link_->attach(this);
    // A list may lead to one node twice.
    constexpr std::uint64_t second = std::uint64_t{1} << 32U;
    node_.add(number < home.nodes_.size() ? client : client + second * number, link_);
  }

  [[nodiscard]] redis_link& connections() noexcept { return *link_; }
  [[nodiscard]] bool idle() const noexcept { return flights_.empty(); }
  void send(delivery what);
  void listen() { link_->subscribe(home_.speech_.channel()); }
  void answer_overdue();
  void arm_again() {
    alarm_ = time_point::max();
    arm();
  }

 private:
  struct flight {
    errand why;
    std::string mark;
    wire_command command;
    time_point answer_by;
    duration lease{};              // of its contender; zero: it leaves nothing behind
    std::uint64_t connection = 0;  // 0: it waits for one
    std::uint64_t heard_before = 0;
  };

  // link_user; runs when something arrives at the machine, frozen or not.
  void replies_arrive(std::vector<reply> batch) override;
  void notice_arrives(const backends::memory::notice& /*what*/) override {}
  void connection_ends(std::uint64_t ended) override;
  void connection_begins() override;
  void line_begins() override;
  void line_ends() override;
  void message_arrives(const std::string& channel, const std::string& payload) override;

  void transmit(std::uint64_t number, flight& what, bool in_full);
  void take(const reply& said);
  void lost(std::uint64_t ended);
  void up(node_facts facts, std::uint64_t connection);
  void arm();

  redlock_driver& home_;
  const node_number number_;
  redlock_node& node_;
  const std::shared_ptr<redis_link> link_;
  std::map<std::uint64_t, flight> flights_;
  std::uint64_t connection_ = 0;  // what the process believes in; 0: none
  std::uint64_t next_number_ = 1;
  std::uint64_t heard_ = 0;
  time_point alarm_ = time_point::max();
};

// ---- one connection ------------------------------------------------------------------------------

void redlock_driver::member::send(delivery what) {
  const std::uint64_t number = next_number_++;
  flight& fresh = flights_[number];
  fresh.why = std::move(what.why);
  fresh.mark = std::move(what.mark);
  fresh.command = std::move(what.command);
  fresh.answer_by = what.answer_by;
  const auto whose = home_.seen_.find(fresh.why.holder);
  if (whose != home_.seen_.end()) fresh.lease = whose->second.lease_length;
  if (connection_ != 0) transmit(number, fresh, false);
  arm();
}

void redlock_driver::member::transmit(std::uint64_t number, flight& what, bool in_full) {
  what.connection = connection_;
  what.heard_before = heard_;
  // The process may not know yet that the connection is gone; then nobody gets this.
  if (!link_->connected() || link_->epoch() != connection_) return;
  link_->send({{.number = number,
                .name = home_.shared_.plan.locks.front().name,  // the node reads the command alone
                .holder = what.why.holder,
                .lease_length = what.lease,
                .sent_at = home_.shared_.loop.now(),
                .command = std::make_shared<const std::vector<std::string>>(
                    words_of(what.command, in_full))}});
}

void redlock_driver::member::arm() {
  time_point next = time_point::max();
  for (const auto& [number, each] : flights_) next = std::min(next, each.answer_by);
  if (next >= alarm_) return;
  alarm_ = next;
  home_.owner_.at_local_time(next, [this, next] {
    if (alarm_ != next) return;
    alarm_ = time_point::max();
    answer_overdue();
    arm();
  });
}

void redlock_driver::member::answer_overdue() {
  const time_point now = home_.owner_.now();
  std::vector<flight> overdue;
  for (auto each = flights_.begin(); each != flights_.end();) {
    if (each->second.answer_by > now) {
      ++each;
      continue;
    }
    overdue.push_back(std::move(each->second));
    each = flights_.erase(each);
  }
  const bool silent = std::any_of(overdue.begin(), overdue.end(), [&](const flight& each) {
    return each.connection != 0 && each.connection == connection_ && each.heard_before == heard_;
  });
  for (const flight& each : overdue) {
    const errc why = each.connection == 0 ? errc::unavailable : errc::outcome_unknown;
    home_.answered(each.why, tl::unexpected(simulated(why)));
  }
  if (silent) link_->reset();
}

void redlock_driver::member::replies_arrive(std::vector<reply> batch) {
  home_.owner_.run([this, batch = std::move(batch)] {
    ++heard_;
    for (const reply& each : batch) take(each);
  });
}

void redlock_driver::member::take(const reply& said) {
  const auto found = flights_.find(said.number);
  if (found == flights_.end()) return;
  if (said.raw->error_word() == "NOSCRIPT") {
    const auto overtakes = [&](const auto& other) {
      return other.second.why.holder == found->second.why.holder;
    };
    const holder_id none{};
    home_.shared_.count.add(counter::script_unknown);
    if (found->second.why.holder == none ||
        std::none_of(std::next(found), flights_.end(), overtakes)) {
      transmit(said.number, found->second, true);
      return;
    }
    const errand why = std::move(found->second.why);
    flights_.erase(found);
    home_.answered(why, tl::unexpected(simulated(errc::unavailable)));
    return;
  }
  const errand why = std::move(found->second.why);
  flights_.erase(found);
  home_.answered(why, said.in_trouble ? draw_trouble(home_.shared_) : *said.raw);
}

void redlock_driver::member::connection_ends(std::uint64_t ended) {
  home_.owner_.run([this, ended] { lost(ended); });
}

void redlock_driver::member::lost(std::uint64_t ended) {
  connection_ = 0;
  std::vector<flight> unanswered;
  for (auto each = flights_.begin(); each != flights_.end();) {
    if (each->second.connection != 0 && each->second.connection <= ended) {
      unanswered.push_back(std::move(each->second));
      each = flights_.erase(each);
    } else {
      ++each;
    }
  }
  home_.step([&](quorum& machine, time_point now, quorum_actions& out) {
    machine.node_down(number_, simulated(errc::unavailable), now, out);
  });
  const errc word = base::planted(base::defect::trouble_told_as_nothing) ? errc::unavailable
                                                                         : errc::outcome_unknown;
  for (const flight& each : unanswered) {
    home_.answered(each.why, tl::unexpected(simulated(word)));
  }
}

void redlock_driver::member::connection_begins() {
  home_.owner_.run(
      [this, facts = node_.facts(), connection = link_->epoch()] { up(facts, connection); });
}

void redlock_driver::member::up(node_facts facts, std::uint64_t connection) {
  connection_ = connection;
  std::vector<std::uint64_t> waiting;
  for (const auto& [number, each] : flights_) {
    if (each.connection == 0) waiting.push_back(number);
  }
  home_.step([&](quorum& machine, time_point now, quorum_actions& out) {
    machine.node_up(number_, std::move(facts), now, out);
  });
  for (const std::uint64_t number : waiting) {
    const auto found = flights_.find(number);
    if (found == flights_.end() || found->second.connection != 0) continue;
    if (home_.machine_.still_meant(found->second.why, found->second.mark)) {
      transmit(number, found->second, false);
      continue;
    }
    const errand why = std::move(found->second.why);
    flights_.erase(found);
    home_.answered(why, tl::unexpected(simulated(errc::unavailable)));
  }
}

void redlock_driver::member::line_begins() {
  home_.owner_.run([this] { home_.line_heard(number_); });
}

void redlock_driver::member::line_ends() {
  home_.owner_.run([this] { home_.line_not_heard(number_); });
}

void redlock_driver::member::message_arrives(const std::string& /*channel*/,
                                             const std::string& payload) {
  home_.owner_.run([this, payload] {
    home_.step([&](quorum& machine, time_point now, quorum_actions& out) {
      machine.heard(number_, payload, now, out);
    });
  });
}

// ---- the client ----------------------------------------------------------------------------------

redlock_driver::redlock_driver(context& shared, checkers& checks, process& owner,
                               redlock_store& nodes, std::uint64_t client)
    : shared_(shared),
      checks_(checks),
      owner_(owner),
      nodes_(nodes),
      speech_({.prefix = "", .client = redlock_client_name(client), .owner = {}}),
      machine_(settings_for(shared, nodes.list_of(client)), speech_) {
  capabilities_.fencing = true;
  capabilities_.direct_handoff = true;
  for (const redlock_store::list_entry& each : nodes.list_of(client)) {
    const auto number = static_cast<node_number>(members_.size());
    members_.push_back(std::make_unique<member>(*this, number, each.node, client));
  }
}

redlock_driver::~redlock_driver() { redlock_driver::die(); }

void redlock_driver::die() {
  if (std::exchange(dead_, true)) return;
  for (const auto& each : members_) each->connections().close();
}

void redlock_driver::connect() {
  for (const auto& each : members_) {
    each->connections().connect_after(draw_between(shared_.random, duration{0}, short_while));
  }
}

std::vector<link*> redlock_driver::connections() {
  std::vector<link*> all;
  for (const auto& each : members_) all.push_back(&each->connections());
  return all;
}

bool redlock_driver::idle() const noexcept {
  return machine_.idle() && to_do_.empty() &&
         std::all_of(members_.begin(), members_.end(),
                     [](const auto& each) { return each->idle(); });
}

template <class Step>
void redlock_driver::step(Step&& what) {
  quorum_actions out;
  what(machine_, owner_.now(), out);
  for (quorum_action& each : out.all) to_do_.push_back(std::move(each));
  if (out.listen) {
    for (const auto& each : members_) each->listen();
  }
  // out.reach: connections are always being made here.
  work_off();
  set_timer();
}

void redlock_driver::work_off() {
  if (working_) return;  // whoever is at it comes to what was added just now, in this order
  working_ = true;
  while (!to_do_.empty()) {
    quorum_action next = std::move(to_do_.front());
    to_do_.pop_front();
    carry_out(next);
  }
  working_ = false;
}

void redlock_driver::carry_out(quorum_action& what) {
  if (auto* const command = std::get_if<delivery>(&what)) {
    sent(command->why);
    members_[command->why.node]->send(std::move(*command));
  } else if (auto* const acquired = std::get_if<acquire_told>(&what)) {
    told(acquired->holder, question::acquire);
    const auto* const won =
        acquired->answer ? std::get_if<backend_api::granted>(&*acquired->answer) : nullptr;
    if (won != nullptr) granted(acquired->holder, won->tokens);
    listener_->acquire_answered(acquired->holder, std::move(acquired->answer));
  } else if (auto* const renewed = std::get_if<renew_told>(&what)) {
    told(renewed->holder, question::renew);
    const auto* const won =
        renewed->answer ? std::get_if<backend_api::renewed>(&*renewed->answer) : nullptr;
    if (won != nullptr) granted(renewed->holder, won->tokens);
    std::array<renew_outcome, 1> outcome{{{renewed->holder, std::move(renewed->answer)}}};
    listener_->renewals_answered(outcome);
  } else if (auto* const left = std::get_if<leave_told>(&what)) {
    told(left->holder, question::leave);
    listener_->leave_answered(left->holder, std::move(left->answer));
  } else if (auto* const look = std::get_if<entered_told>(&what)) {
    listener_->granted_notice(look->holder, std::nullopt);
  } else if (auto* const lost = std::get_if<lost_told>(&what)) {
    listener_->lost_notice(lost->holder);
  } else {
    listener_->reconnected();
  }
}

void redlock_driver::set_timer() {
  const time_point wake = machine_.wake_at();
  if (wake >= timer_) return;
  timer_ = wake;
  owner_.at_local_time(wake, [this, wake] {
    if (timer_ == wake) timer_due();
  });
}

void redlock_driver::timer_due() {
  timer_ = time_point::max();
  step([](quorum& machine, time_point now, quorum_actions& out) { machine.on_timer(now, out); });
}

void redlock_driver::answer_overdue() {
  // The clock may have been changed: what was set before may come too late.
  for (const auto& each : members_) {
    each->answer_overdue();
    each->arm_again();
  }
  timer_due();
  question_timer_ = time_point::max();
  check_answered();
}

void redlock_driver::answered(const errand& why, base::result<backends::redis::reply> said) {
  if (said) got(why, *said);
  step([&](quorum& machine, time_point now, quorum_actions& out) {
    machine.answered(why, std::move(said), now, out);
  });
}

void redlock_driver::line_heard(node_number which) {
  machine_.node_heard(which, true);
  heard_ |= only(which);
  // As in the product: whoever waited for it stands in line now, and whoever stood there unheard does
  // so again.
  if ((machine_.nodes().voters() & ~heard_) == 0) listener_->reconnected();
}

void redlock_driver::line_not_heard(node_number which) {
  machine_.node_heard(which, false);
  heard_ &= ~only(which);
}

// ---- requests ------------------------------------------------------------------------------------

void redlock_driver::acquire(const backend_api::acquire_request& request) {
  asks(request.holder, request.name, question::acquire, request.answer_by);
  seen_[request.holder].lease_length = request.lease_length;
  step([&](quorum& machine, time_point now, quorum_actions& out) {
    machine.acquire(request, now, out);
  });
}

void redlock_driver::renew(std::span<const renew_request> batch) {
  for (const renew_request& each : batch) {
    asks(each.holder, each.name, question::renew, each.answer_by);
  }
  step([&](quorum& machine, time_point now, quorum_actions& out) {
    for (const renew_request& each : batch) machine.renew(each, now, out);
  });
}

void redlock_driver::leave(const leave_request& request, bool withdraw) {
  asks(request.holder, request.name, question::leave, request.answer_by);
  step([&](quorum& machine, time_point now, quorum_actions& out) {
    machine.leave(request, withdraw, now, out);
  });
}

void redlock_driver::downgrade(const renew_request& request) {
  listener_->downgrade_answered(request.holder, base::fail(errc::not_supported));
}

void redlock_driver::set_value(const renew_request&, std::string_view,
                               backend_api::completion<bool> done) {
  done(base::fail(errc::not_supported));
}

void redlock_driver::list(std::string_view, std::string_view, std::size_t,
                          backend_api::completion<std::vector<lock_info>> done) {
  done(base::fail(errc::not_supported));
}

void redlock_driver::who(const lock_name&, backend_api::completion<std::optional<lock_info>> done) {
  done(base::fail(errc::not_supported));
}

void redlock_driver::break_lock(const lock_name&, fencing_token, backend_api::break_mode,
                                backend_api::completion<std::monostate> done) {
  done(base::fail(errc::not_supported));
}

backend_api::drive_outcome redlock_driver::drive(backend_api::drive_ticket&, time_point) {
  return backend_api::drive_outcome::not_driven;
}

// ---- for the checkers ----------------------------------------------------------------------------

void redlock_driver::asks(const holder_id& who, const lock_name& name, question what,
                          time_point answer_by) {
  contender_seen& seen = seen_[who];
  seen.lock = shared_.index_of(name);
  seen.asked[what] = {answer_by, 0};
  if (answer_by + answer_slack >= question_timer_) return;
  question_timer_ = answer_by + answer_slack;
  owner_.at_local_time(question_timer_, [this, when = question_timer_] {
    if (question_timer_ == when) check_answered();
  });
}

void redlock_driver::told(const holder_id& who, question what) {
  const auto found = seen_.find(who);
  if (found == seen_.end() || found->second.asked.erase(what) == 0) {
    shared_.fail("waits end", "a request was answered that nobody had asked, or twice");
    return;
  }
  if (what == question::leave && found->second.asked.empty()) seen_.erase(found);
}

void redlock_driver::check_answered() {
  const time_point now = owner_.now();
  bool overdue = false;
  time_point next = time_point::max();
  for (auto& [holder, seen] : seen_) {
    for (auto& [what, open] : seen.asked) {
      if (now < open.answer_by + answer_slack) {
        next = std::min(next, open.answer_by + answer_slack);
        continue;
      }
      // A process that was frozen has to come through the steps of a round first.
      overdue = true;
      if (++open.looks < looks_before_late) continue;
      shared_.fail("waits end", "request " + std::to_string(static_cast<int>(what)) +
                                    " of ticket " + std::to_string(holder.low % 10'000) +
                                    " was not answered in time");
      return;
    }
  }
  question_timer_ = overdue ? now + answer_slack : next;
  if (question_timer_ == time_point::max()) return;
  owner_.at_local_time(question_timer_, [this, when = question_timer_] {
    if (question_timer_ == when) check_answered();
  });
}

void redlock_driver::sent(const errand& why) {
  shared_.note("process # sends errand # to node #, ticket #",
               static_cast<std::int64_t>(owner_.number()), static_cast<std::int64_t>(why.what),
               why.node, static_cast<std::int64_t>(why.holder.low % 10'000));
  switch (why.what) {
    case errand::kind::raise:
      shared_.count.add(counter::quorum_raise);
      return;
    case errand::kind::heal:
      shared_.count.add(counter::quorum_heal);
      return;
    case errand::kind::settle:
      if (why.round == 0) shared_.count.add(counter::quorum_debt_paid);
      return;
    case errand::kind::bid:
    case errand::kind::extend:
    case errand::kind::enqueue:
    case errand::kind::leave:
      break;
    case errand::kind::adopt:
    case errand::kind::read_mark:
    case errand::kind::read_clock:
    case errand::kind::read_counter:
    case errand::kind::look:
      return;
  }
  const auto found = seen_.find(why.holder);
  if (found == seen_.end()) return;
  round_seen& round = found->second.round;
  if (round.number == why.round) return;
  if (why.what == errand::kind::enqueue && !found->second.held) {
    if (round.what == errand::kind::bid && round.votes > 0) {
      shared_.count.add(counter::quorum_split);
    }
    if (round.what == errand::kind::extend) shared_.count.add(counter::quorum_claim_lost);
  }
  round = {.number = why.round, .what = why.what, .since = checks_.store.next_sequence()};
}

void redlock_driver::got(const errand& why, const backends::redis::reply& said) {
  if (!said.is_array() || said.elements.empty()) return;
  const std::int64_t verdict = said.elements.front().integer;
  if (verdict == -1) shared_.count.add(counter::quorum_not_a_member);
  if (why.what == errand::kind::raise && verdict != 1) {
    shared_.count.add(counter::quorum_raise_refused);
  }
  const auto found = seen_.find(why.holder);
  if (found == seen_.end() || found->second.round.number != why.round) return;
  if (verdict == 1) ++found->second.round.votes;
}

void redlock_driver::granted(const holder_id& who, const backend_api::token_block& tokens) {
  const auto found = seen_.find(who);
  if (found == seen_.end()) return;
  contender_seen& seen = found->second;
  if (!std::exchange(seen.held, true)) {
    shared_.count.add(seen.round.what == errand::kind::bid ? counter::quorum_bid_won
                                                           : counter::quorum_claim_won);
  }
  checks_.store.quorum_granted(seen.lock, who, tokens, seen.round.since);
}

}  // namespace sallyport::sim
