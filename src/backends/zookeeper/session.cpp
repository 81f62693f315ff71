#include "backends/zookeeper/session.hpp"

#include "base/check.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sys/timerfd.h>
#include <unistd.h>
#include <utility>

namespace sallyport::backends::zookeeper {

using backend_api::acquire_request;
using backend_api::closed_failure;
using backend_api::completion;
using backend_api::delivery_gate;
using backend_api::drive_outcome;
using backend_api::leave_request;
using backend_api::renew_outcome;
using backend_api::renew_request;

namespace {

using namespace std::chrono_literals;

sallyport::capabilities capabilities_of(const address& where, const std::string& store_id) {
  const bool kazoo = where.nodes.speech == dialect::kazoo;
  sallyport::capabilities out;
  out.fencing = true;
  out.fifo = true;
  out.direct_handoff = true;
  out.shared_locks = true;
  out.semaphores = !kazoo;
  out.elections = true;
  out.notices_death = false;
  out.tells_kind = !kazoo;
  out.survives_store_restart = true;
  out.min_lease = 100ms;
  out.max_lease = 24h;
  out.store_id = store_id;
  out.caveats = {
      "A killed holder delays others by its session's timeout: the lease's length, but never less "
      "than the servers' minSessionTimeout (two ticks, 4 s by default), and up to a tick more.",
      "A holder trusts its session for two thirds of the timeout, less a tick, after the leader "
      "has "
      "last answered; deadline() says until when.",
      "Tokens keep their order as long as the ensemble keeps its data: not when it is set back to "
      "an "
      "older backup.",
      "Clients of other libraries on the same locks may go on after their session has ended; fence "
      "what must not be written by two.",
  };
  if (where.user.empty()) {
    out.caveats.emplace_back(
        "Without a user the nodes are open: whoever reaches the servers can delete them, and so "
        "take "
        "a lock from its holder.");
  }
  return out;
}

}  // namespace

// ---- opening and closing -------------------------------------------------------------------------

base::result<std::shared_ptr<session>> session::open(const backend_api::open_request& request) {
  auto where = parse_address(request.uri);
  if (!where) return tl::unexpected(where.error());
  base::descriptor timer{timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)};
  if (!timer.open()) {
    return base::fail(std::error_code(errno, std::generic_category()), "a timer for ZooKeeper");
  }
  return std::make_shared<session>(*where, request, std::move(timer));
}

session::session(const address& where, const backend_api::open_request& request,
                 base::descriptor timer)
    : listener_(request.listener),
      nodes_(where.nodes),
      identity_("zookeeper", where.store,
                where.nodes.root + (where.nodes.names_are_paths ? "?names=path" : "")),
      capabilities_(capabilities_of(where, identity_.id())),
      timer_(std::move(timer)),
      wire_(where, *this),
      machine_({.nodes = layout(where.nodes),
                .owner = request.owner,
                .tick = where.tick,
                .asks_name = !identity_.named_by_hand()}) {}

void session::answer_parked() {
  std::vector<std::unique_ptr<const backend_api::parked_acquire>> unsent;
  {
    const base::mutex_lock lock(mutex_);
    unsent = parked_.take_all();
  }
  for (const auto& each : unsent) {
    listener_.acquire_answered(each->request.holder, tl::unexpected(closed_failure()));
  }
}

void session::close() {
  std::deque<action> last;
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      const base::mutex_lock lock(mutex_);
      actions out;
      machine_.close(out);
      last = std::move(to_do_);
      to_do_.clear();
      for (action& each : out) last.push_back(std::move(each));
    }
  }
  for (action& each : last) static_cast<void>(tell(each));
  if (!gate_.close()) return;
  answer_parked();
  // Nobody else is at the wire any more.
  for (action& each : last) {
    if (const auto* const order = std::get_if<close_order>(&each)) {
      wire_.close(order->line, order->abandon);
    }
  }
  wire_.bury();
}

// ---- steps ---------------------------------------------------------------------------------------

template <class Step>
void session::step(Step&& what) {
  {
    const base::mutex_lock lock(mutex_);
    actions out;
    what(machine_, lease_clock::now(), out);
    for (action& each : out) to_do_.push_back(std::move(each));
    set_timer();
  }
  work_off();
}

template <class Step>
void session::heard(Step&& what) {
  const auto alive = weak_from_this().lock();  // a listener may let go of the last handle
  if (!alive) return;
  const delivery_gate::pass pass(gate_);
  if (pass.open()) step(std::forward<Step>(what));
}

void session::work_off() {
  for (;;) {
    std::optional<action> next;
    {
      const base::mutex_lock lock(mutex_);
      // Whoever is at it comes to what was added just now, in this order.
      if (working_ || to_do_.empty()) return;
      working_ = true;
      next.emplace(std::move(to_do_.front()));
      to_do_.pop_front();
    }
    carry_out(*next);
    const base::mutex_lock lock(mutex_);
    working_ = false;
  }
}

void session::carry_out(action& what) {
  if (auto* const order = std::get_if<send_order>(&what)) {
    wire_.send(order->line, order->errand, order->what);
  } else if (tell(what)) {
    return;
  } else if (auto* const opening = std::get_if<open_order>(&what)) {
    wire_.open(opening->line, opening->timeout);
  } else if (auto* const closing = std::get_if<close_order>(&what)) {
    wire_.close(closing->line, closing->abandon);
  } else if (auto* const doubt = std::get_if<doubt_order>(&what)) {
    wire_.doubt(doubt->line, doubt->hangs);
  }
}

bool session::tell(action& what) {
  if (backend_api::tell(listener_, what)) return true;
  if (auto* const proclaimed = std::get_if<value_told>(&what)) {
    completion<bool> done;
    {
      const base::mutex_lock lock(mutex_);
      const auto found = values_.find(proclaimed->ticket);
      if (found == values_.end()) return true;
      done = std::move(found->second);
      values_.erase(found);
    }
    done(std::move(proclaimed->answer));
  } else if (auto* const told = std::get_if<asked_told>(&what)) {
    std::function<void(answers)> done;
    {
      const base::mutex_lock lock(mutex_);
      const auto found = asked_.find(told->ticket);
      if (found == asked_.end()) return true;
      done = std::move(found->second);
      asked_.erase(found);
    }
    done(std::move(told->answers));
  } else {
    return false;
  }
  return true;
}

// ---- time ----------------------------------------------------------------------------------------

void session::set_timer() {
  const time_point when = machine_.wake_at();
  if (when == armed_) return;
  armed_ = when;
  itimerspec setting{};
  if (when != time_point::max()) {
    const auto since_boot = std::max(when.time_since_epoch(), duration{1});
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
    setting.it_value.tv_sec = whole.count();
    setting.it_value.tv_nsec = (since_boot - whole).count();
  }
  SALLYPORT_CHECK(timerfd_settime(timer_.number(), TFD_TIMER_ABSTIME, &setting, nullptr) == 0);
}

void session::run_due() {
  heard([](contention& machine, time_point now, actions& out) { machine.on_timer(now, out); });
}

void session::attend() {
  std::uint64_t count = 0;
  static_cast<void>(::read(timer_.number(), &count, sizeof count));
  {
    const base::mutex_lock lock(mutex_);
    armed_ = time_point::min();  // it has fired: to be set anew
  }
  run_due();
}

drive_outcome session::drive(backend_api::drive_ticket& ticket, time_point deadline) {
  const auto alive = shared_from_this();
  while (!ticket.finished()) {
    time_point wake;
    {
      const base::mutex_lock lock(mutex_);
      wake = machine_.wake_at();
    }
    const time_point now = lease_clock::now();
    if (now >= deadline) return drive_outcome::deadline_passed;
    if (now >= wake) {
      run_due();
      continue;
    }
    // What is asked later is asked by somebody whose timers the watchdog serves already.
    const time_point until = std::min(wake, deadline);
    if (until == time_point::max()) {
      ticket.wait();
    } else {
      static_cast<void>(ticket.wait_for(until - now));
    }
  }
  return drive_outcome::finished;
}

// ---- requests ------------------------------------------------------------------------------------

void session::acquire(const acquire_request& request) {
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      std::optional<contention::name_question> wanted;
      step([&](contention& machine, time_point now, actions& out) {
        wanted = machine.name_wanted(request, out);
        if (!wanted) machine.acquire(request, now, out);
      });
      if (wanted) acquire_once_named(request, *wanted);
      return;
    }
  }
  listener_.acquire_answered(request.holder, tl::unexpected(closed_failure()));
}

void session::acquire_once_named(const acquire_request& request, const name_question& question) {
  {
    const base::mutex_lock lock(mutex_);
    parked_.park(request);
  }
  ask_until(request.answer_by, question.line,
            {{.what = verb::read, .path = nodes_.store_name_node()}},
            [this, who = request.holder, question, answer_by = request.answer_by](answers said) {
              if (said[0].is == status::no_node) {
                give_name(who, question, answer_by);
              } else {
                named(who, question, said[0]);
              }
            });
}

void session::give_name(const backend_api::holder_id& who, const name_question& question,
                        time_point answer_by) {
  std::vector<request> all;
  const std::string root = nodes_.root();
  for (std::size_t end = root.find('/', 1); root != "/"; end = root.find('/', end + 1)) {
    all.push_back({.what = verb::create_folder, .path = root.substr(0, end)});
    if (end == std::string::npos) break;
  }
  // Of several who come at once the first creates it, and all read what it wrote.
  const std::string path = nodes_.store_name_node();
  all.push_back({.what = verb::create_kept, .path = path, .data = backend_api::fresh_store_name()});
  all.push_back({.what = verb::read, .path = path});
  ask_until(answer_by, question.line, std::move(all), [this, who, question](answers said) {
    const reply& created = said[said.size() - 2];
    // What it said of its own try is worth more than that there is nothing to read.
    named(who, question, created.is == status::refused ? created : said.back());
  });
}

void session::named(const backend_api::holder_id& who, const name_question& question,
                    const reply& said) {
  base::result<void> learnt;
  if (said.is == status::ok) {
    learnt = identity_.learn(said.data);
  } else {
    // Of the acquire itself nothing was sent.
    learnt = base::fail(said.is == status::refused ? errc::store_refused : errc::unavailable,
                        "the store's name is not known: " + said.text);
  }
  std::unique_ptr<const backend_api::parked_acquire> parked;
  {
    const base::mutex_lock lock(mutex_);
    parked = parked_.take(who);
  }
  if (!learnt) {
    if (parked) listener_.acquire_answered(who, tl::unexpected(learnt.error()));
    return;
  }
  step([&](contention& machine, time_point now, actions& out) {
    machine.line_named(question, said.data);
    if (parked) machine.acquire(parked->request, now, out);
  });
}

void session::give_up_parked(const backend_api::holder_id& holder) {
  std::unique_ptr<const backend_api::parked_acquire> unsent;
  {
    const base::mutex_lock lock(mutex_);
    unsent = parked_.take(holder);
  }
  if (!unsent) return;
  listener_.acquire_answered(holder, backend_api::left_before_sent());
}

void session::renew(std::span<const renew_request> batch) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    for (const renew_request& each : batch) {
      std::array<renew_outcome, 1> outcome{{{each.holder, tl::unexpected(closed_failure())}}};
      listener_.renewals_answered(outcome);
    }
    return;
  }
  step([&](contention& machine, time_point now, actions& out) {
    for (const renew_request& each : batch) machine.renew(each, now, out);
  });
}

void session::leave(const leave_request& request, bool /*withdraw*/) {
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      give_up_parked(request.holder);
      step([&](contention& machine, time_point now, actions& out) {
        machine.leave(request, now, out);
      });
      return;
    }
  }
  listener_.leave_answered(request.holder, tl::unexpected(closed_failure()));
}

void session::downgrade(const renew_request& request) {
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      step([&](contention& machine, time_point now, actions& out) {
        machine.downgrade(request, now, out);
      });
      return;
    }
  }
  listener_.downgrade_answered(request.holder, tl::unexpected(closed_failure()));
}

void session::set_value(const renew_request& holder, std::string_view value,
                        completion<bool> done) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    done(tl::unexpected(closed_failure()));
    return;
  }
  std::uint64_t ticket = 0;
  {
    const base::mutex_lock lock(mutex_);
    ticket = next_ticket_++;
    values_.emplace(ticket, std::move(done));
  }
  step([&](contention& machine, time_point now, actions& out) {
    machine.set_value(holder, value, ticket, now, out);
  });
}

void session::watch(const lock_name& name, bool on) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) return;
  step([&](contention& machine, time_point now, actions& out) {
    machine.watch(name, on, now, out);
  });
}

// ---- for inspection.cpp --------------------------------------------------------------------------

void session::ask(line_number line, std::vector<request> all, std::function<void(answers)> done) {
  ask_until(lease_clock::now() + housekeeping_patience, line, std::move(all), std::move(done));
}

void session::ask_until(time_point answer_by, line_number line, std::vector<request> all,
                        std::function<void(answers)> done) {
  const delivery_gate::pass guard(gate_);
  if (!guard.open()) {
    done(answers(all.size(), reply{.is = status::not_sent, .text = "the client was closed"}));
    return;
  }
  std::uint64_t ticket = 0;
  {
    const base::mutex_lock lock(mutex_);
    ticket = next_ticket_++;
    asked_.emplace(ticket, std::move(done));
  }
  step([&](contention& machine, time_point now, actions& out) {
    machine.ask(line, std::move(all), ticket, answer_by, now, out);
  });
}

line_number session::open_line(duration timeout) {
  line_number line = 0;
  step([&](contention& machine, time_point, actions& out) {
    line = machine.open_line(timeout, out);
  });
  return line;
}

void session::end_line(line_number line, bool keep_session) {
  heard([&](contention& machine, time_point, actions& out) {
    machine.end_line(line, keep_session, out);
  });
}

// ---- what the wire tells -------------------------------------------------------------------------

void session::answered(errand_number errand, reply said) {
  heard([&](contention& machine, time_point now, actions& out) {
    machine.answered(errand, std::move(said), now, out);
  });
}

void session::line_up(line_number line, session_id number, duration timeout) {
  heard([&](contention& machine, time_point now, actions& out) {
    machine.line_up(line, number, timeout, now, out);
  });
}

void session::line_down(line_number line) {
  heard([&](contention& machine, time_point, actions&) { machine.line_down(line); });
}

void session::line_ended(line_number line) {
  heard([&](contention& machine, time_point now, actions& out) {
    machine.line_ended(line, now, out);
  });
}

void session::happened(const std::string& path, bool gone, bool below) {
  heard([&](contention& machine, time_point now, actions& out) {
    machine.happened(path, gone, below, now, out);
  });
}

}  // namespace sallyport::backends::zookeeper
