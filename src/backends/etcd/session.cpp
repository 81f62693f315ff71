#include "backends/etcd/session.hpp"

#include "base/random.hpp"
#include "base/wall_clock.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <array>
#include <span>
#include <utility>

namespace sallyport::backends::etcd {

using backend_api::acquire_request;
using backend_api::acquire_told;
using backend_api::closed_failure;
using backend_api::completion;
using backend_api::delivery_gate;
using backend_api::granted;
using backend_api::leave_request;
using backend_api::renew_outcome;
using backend_api::renew_request;

namespace {

using namespace std::chrono_literals;

constexpr const char* range_method = "/etcdserverpb.KV/Range";
constexpr const char* txn_method = "/etcdserverpb.KV/Txn";
constexpr const char* grant_method = "/etcdserverpb.Lease/LeaseGrant";
constexpr const char* revoke_method = "/etcdserverpb.Lease/LeaseRevoke";
constexpr duration revoke_patience = 1s;
// So much later than its request's time may a grant be told that came over a new connection.
constexpr duration name_patience = 500ms;

base::result<backend_api::acquire_answer> unnamed_failure() {
  return base::fail(errc::outcome_unknown, "the connection broke while it was granted");
}

template <class T, class Read>
reply<T> translated(const reply<std::string>& said, Read read) {
  reply<T> out{.value = {}, .why = said.why, .text = said.text, .doubtful = said.doubtful};
  if (!said.value) return out;
  out.value = read(*said.value);
  if (!out.value) {
    out.why = trouble::unknown;
    out.text = "an answer that cannot be understood";
  }
  return out;
}

sallyport::capabilities make_capabilities() {
  sallyport::capabilities out;
  out.fencing = true;
  out.fifo = true;
  out.direct_handoff = true;
  out.shared_locks = true;
  out.semaphores = true;
  out.elections = true;
  out.tells_kind = true;
  out.survives_store_restart = true;
  out.min_lease = 2s;
  out.lease_granularity = 1s;
  out.caveats = {
      "Tokens are etcd's revisions: they keep their order as long as the cluster keeps its data. "
      "Restoring a snapshot takes revisions back.",
      "A member that has lost its leadership without knowing it may go on keeping leases alive "
      "(etcd issues 12528, 15247); a keep-alive counts here only once a read has proven the "
      "leader, "
      "but other libraries' clients on the same locks do not ask for that.",
      "Waiters of Debian's etcdctl lock 3.4 may enter although their own session has ended; fence "
      "what must not be written by two.",
  };
  return out;
}

}  // namespace

lease_id session::fresh_lease() {
  std::uint64_t bits = 0;
  base::fill_from_kernel(std::as_writable_bytes(std::span(&bits, 1)));
  constexpr std::uint64_t second = std::uint64_t{1} << 62U;
  return static_cast<lease_id>((bits & (second - 1)) | second);
}

// ---- opening and closing -------------------------------------------------------------------------

base::result<std::shared_ptr<session>> session::open(const backend_api::open_request& request) {
  auto where = parse_address(request.uri);
  if (!where) return tl::unexpected(where.error());
  auto made = std::make_shared<session>(*where, request);
  auto connected = transport::make(*where, *made);
  if (!connected) return tl::unexpected(connected.error());
  made->transport_ = std::move(*connected);
  return made;
}

session::session(const address& where, const backend_api::open_request& request)
    : listener_(request.listener),
      keys_(where.prefix),
      capabilities_(make_capabilities()),
      identity_("etcd", where.store, ":" + where.prefix),
      machine_({.keys = layout(where.prefix),
                .owner = request.owner,
                .fresh_lease = &session::fresh_lease,
                .wall_ms = &base::wall_clock_ms}),
      naming_(identity_.named_by_hand()) {
  capabilities_.store_id = identity_.id();
}

std::optional<store_entry> session::entry_of(const backend_api::holder_id& who) const {
  const base::mutex_lock lock(mutex_);
  return machine_.grant_of(who);
}

void session::answer_parked() {
  naming::released waiting;
  {
    const base::mutex_lock lock(mutex_);
    waiting = naming_.take_all();
  }
  for (const auto& each : waiting.acquires) {
    listener_.acquire_answered(each->request.holder, tl::unexpected(closed_failure()));
  }
  for (const auto& each : waiting.doubtful) listener_.acquire_answered(each, unnamed_failure());
}

void session::close() {
  actions out;
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      const base::mutex_lock lock(mutex_);
      // Nothing is told after this has returned, also if it is called by one who is being told.
      for (action& each : to_do_) out.push_back(std::move(each));
      to_do_.clear();
      machine_.close(out);
    }
  }
  for (action& each : out) {
    const bool pointless =
        std::holds_alternative<txn_order>(each) || std::holds_alternative<grant_order>(each) ||
        std::holds_alternative<keep_alive_order>(each) || std::holds_alternative<watch_order>(each);
    if (!pointless) carry_out(each);
  }
  // Leases that nobody needs any more are not left to lapse, if the store is there to hear it.
  if (!transport_->delivers_here()) {
    transport_->hurry();
    for (int left = farewells_.load(); left > 0; left = farewells_.load()) farewells_.wait(left);
  }
  gate_.close();
  answer_parked();
  transport_->close();
}

backend_api::drive_outcome session::drive(backend_api::drive_ticket& ticket, time_point deadline) {
  const auto alive = shared_from_this();  // a caller may outlive the client that it drives
  return transport_->drive(ticket, deadline);
}

// ---- steps ---------------------------------------------------------------------------------------

template <class Step>
void session::step(Step&& what) {
  time_point wake;
  {
    const base::mutex_lock lock(mutex_);
    actions out;
    what(machine_, lease_clock::now(), out);
    for (action& each : out) to_do_.push_back(std::move(each));
    wake = machine_.wake_at();
  }
  work_off();
  if (wake != time_point::max()) transport_->set_alarm(wake);
}

template <class Step>
void session::heard(Step&& what) {
  const auto alive = shared_from_this();  // a listener may let go of the last handle
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
  if (auto* const told = std::get_if<acquire_told>(&what);
      told != nullptr && told->answer && std::holds_alternative<granted>(*told->answer) &&
      keep_until_named(told->holder, std::get<granted>(*told->answer))) {
    return;
  }
  if (auto* const lost = std::get_if<lost_told>(&what); lost != nullptr && give_up_grant(*lost)) {
    return;
  }
  if (auto* const order = std::get_if<txn_order>(&what)) {
    send(*order);
  } else if (backend_api::tell(listener_, what)) {
    return;
  } else if (auto* const watching = std::get_if<watch_order>(&what)) {
    transport_->watch(
        codec::watch_request(watching->watch, watching->key, watching->end, watching->puts));
  } else if (auto* const unwatching = std::get_if<unwatch_order>(&what)) {
    transport_->watch(codec::unwatch_request(unwatching->watch));
  } else if (auto* const kept = std::get_if<keep_alive_order>(&what)) {
    transport_->keep_alive(codec::keep_alive_request(kept->lease));
  } else if (auto* const granting = std::get_if<grant_order>(&what)) {
    transport_->call(grant_method, codec::grant_request(granting->lease, granting->seconds),
                     granting->answer_by,
                     [this, lease = granting->lease](const reply<std::string>& said) {
                       const auto seconds = translated<std::int64_t>(said, &codec::read_grant);
                       heard([&](contention& machine, time_point now, actions& out) {
                         machine.lease_granted(lease, seconds, now, out);
                       });
                     });
  } else if (auto* const revoking = std::get_if<revoke_order>(&what)) {
    farewells_.fetch_add(1);
    transport_->call(revoke_method, codec::revoke_request(revoking->lease),
                     lease_clock::now() + revoke_patience, [this](const reply<std::string>&) {
                       if (farewells_.fetch_sub(1) == 1) farewells_.notify_all();
                     });
  } else if (std::holds_alternative<doubt_order>(what)) {
    transport_->doubt();
  } else if (auto* const proclaimed = std::get_if<value_told>(&what)) {
    completion<bool> done;
    {
      const base::mutex_lock lock(mutex_);
      const auto found = values_.find(proclaimed->ticket);
      if (found == values_.end()) return;
      done = std::move(found->second);
      values_.erase(found);
    }
    done(std::move(proclaimed->answer));
  }
}

void session::send(txn_order& what) {
  transport_->call(txn_method, codec::txn_request(what.what), what.answer_by,
                   [this, errand = what.errand](const reply<std::string>& said) {
                     const auto answer = translated<txn_answer>(said, &codec::read_txn);
                     if (casts_doubt(answer)) connection_doubted();
                     heard([&](contention& machine, time_point now, actions& out) {
                       machine.txn_answered(errand, answer, now, out);
                     });
                   });
}

void session::ask(const txn& what, std::function<void(const reply<txn_answer>&)> done) {
  transport_->call(txn_method, codec::txn_request(what), lease_clock::now() + housekeeping_patience,
                   [done = std::move(done)](const reply<std::string>& said) {
                     done(translated<txn_answer>(said, &codec::read_txn));
                   });
}

// ---- requests ------------------------------------------------------------------------------------

void session::acquire(const acquire_request& request) {
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      if (!park_until_named(request)) {
        step([&](contention& machine, time_point now, actions& out) {
          machine.acquire(request, now, out);
        });
      }
      if (!request.driven) transport_->hurry();
      return;
    }
  }
  listener_.acquire_answered(request.holder, tl::unexpected(closed_failure()));
}

void session::connection_doubted() {
  const base::mutex_lock lock(mutex_);
  naming_.doubt();
}

bool session::park_until_named(const acquire_request& request) {
  std::optional<name_question> question;
  {
    const base::mutex_lock lock(mutex_);
    if (naming_.fresh()) return false;
    question = naming_.park(request);
  }
  if (question) ask_name(*question);
  return true;
}

bool session::keep_until_named(const backend_api::holder_id& holder, const granted& grant) {
  std::optional<name_question> question;
  {
    const base::mutex_lock lock(mutex_);
    if (naming_.fresh()) return false;
    question = naming_.keep(holder, grant, lease_clock::now() + name_patience);
  }
  if (question) ask_name(*question);
  return true;
}

bool session::give_up_grant(const lost_told& what) {
  {
    const base::mutex_lock lock(mutex_);
    if (!naming_.take_grant(what.holder)) return false;
  }
  // Core has not heard of the grant, so it would take no notice of its loss.
  listener_.acquire_answered(what.holder, unnamed_failure());
  return true;
}

void session::ask_name(const name_question& question) {
  // A read: also a store that is full, or a user who may only read, has a name.
  transport_->call(range_method, codec::range_request({.key = keys_.store_name_key()}),
                   question.answer_by, [this, question](const reply<std::string>& said) {
                     const auto alive =
                         shared_from_this();  // a listener may let go of the last handle
                     const delivery_gate::pass pass(gate_);
                     if (!pass.open()) return;
                     const auto found = translated<operation_answer>(said, &codec::read_range);
                     if (found.value && found.value->found.empty()) {
                       give_name(question);
                     } else {
                       named(question, found);
                     }
                   });
}

void session::give_name(const name_question& question) {
  const std::string key = keys_.store_name_key();
  const txn what{
      .when = {{.what = condition::field::created, .number = 0, .key = key}},
      .then = {put{.key = key, .value = backend_api::fresh_store_name()}, look_up{.key = key}},
      .otherwise = {look_up{.key = key}}};
  transport_->call(
      txn_method, codec::txn_request(what), question.answer_by,
      [this, question](const reply<std::string>& said) {
        const auto alive = shared_from_this();  // a listener may let go of the last handle
        const delivery_gate::pass pass(gate_);
        if (!pass.open()) return;
        auto answer = translated<txn_answer>(said, &codec::read_txn);
        reply<operation_answer> found{.value = {}, .why = answer.why, .text = answer.text};
        if (answer.value) found.value.emplace();
        if (answer.value && !answer.value->answers.empty()) {
          found.value = std::move(answer.value->answers.back());
        }
        named(question, found);
      });
}

base::result<void> session::learn_name(const reply<operation_answer>& said) {
  if (!said.value) {
    // Of the acquire itself nothing was sent.
    return base::fail(said.why == trouble::refused ? errc::store_refused : errc::unavailable,
                      "the store's name is not known: " + said.text);
  }
  if (said.value->found.size() != 1) {
    return base::fail(errc::store_refused, "an answer without the store's name");
  }
  return identity_.learn(said.value->found.front().value);
}

void session::named(const name_question& question, const reply<operation_answer>& said) {
  const auto learnt = learn_name(said);
  naming::released now_known;
  {
    const base::mutex_lock lock(mutex_);
    now_known = naming_.answered(question.number, learnt.has_value());
  }
  for (const naming::grant& each : now_known.good) {
    listener_.acquire_answered(each.holder, each.given);
  }
  for (const auto& each : now_known.doubtful) listener_.acquire_answered(each, unnamed_failure());
  if (!learnt) {
    for (const auto& each : now_known.acquires) {
      listener_.acquire_answered(each->request.holder, tl::unexpected(learnt.error()));
    }
    return;
  }
  step([&](contention& machine, time_point now, actions& out) {
    for (const auto& each : now_known.acquires) machine.acquire(each->request, now, out);
  });
}

void session::give_up_parked(const backend_api::holder_id& holder) {
  std::unique_ptr<const backend_api::parked_acquire> unsent;
  bool granted_unheard = false;
  {
    const base::mutex_lock lock(mutex_);
    unsent = naming_.take_acquire(holder);
    granted_unheard = naming_.take_grant(holder);
  }
  if (unsent) {
    listener_.acquire_answered(holder, backend_api::left_before_sent());
  } else if (granted_unheard) {
    listener_.acquire_answered(holder, unnamed_failure());
  }
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
      if (!request.driven) transport_->hurry();
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
    ticket = next_value_++;
    values_.emplace(ticket, std::move(done));
  }
  step([&](contention& machine, time_point now, actions& out) {
    machine.set_value(holder, value, ticket, now, out);
  });
}

void session::watch(const lock_name& name, bool on) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) return;
  step([&](contention& machine, time_point, actions& out) { machine.watch(name, on, out); });
}

// ---- what comes unasked --------------------------------------------------------------------------

void session::connected() { connection_doubted(); }

void session::kept_alive(const codec::kept_alive& said) {
  heard([&](contention& machine, time_point now, actions& out) {
    machine.kept_alive(said.lease, said.seconds, said.term, now, out);
  });
}

void session::keep_alives_over(stream_end how) {
  if (how == stream_end::broken) connection_doubted();
  heard([&](contention& machine, time_point now, actions& out) {
    machine.keep_alives_broken(now, out, how == stream_end::broken);
  });
}

void session::watch_reported(const codec::watch_report& said) {
  heard([&](contention& machine, time_point now, actions& out) {
    if (said.created && !said.ended) machine.watch_began(said.watch, said.at, now, out);
    if (!said.events.empty()) machine.watch_said(said.watch, said.events, now, out);
    if (said.ended) machine.watch_ended(said.watch, now, out);
  });
}

void session::watches_over(stream_end how) {
  if (how == stream_end::broken) connection_doubted();
  heard([&](contention& machine, time_point now, actions& out) {
    machine.watches_broken(now, out, how == stream_end::broken);
  });
}

void session::watches_back() {
  heard([](contention& machine, time_point, actions& out) { machine.watches_back(out); });
}

void session::alarm_rang() {
  heard([](contention& machine, time_point now, actions& out) { machine.on_timer(now, out); });
}

}  // namespace sallyport::backends::etcd
