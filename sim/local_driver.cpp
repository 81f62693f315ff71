#include "sim/local_driver.hpp"

#include "base/planted.hpp"
#include "sim/process.hpp"

#include <array>
#include <chrono>
#include <utility>

namespace sallyport::sim {

using backend_api::acquire_request;
using backend_api::leave_answer;
using backend_api::leave_request;
using backend_api::renew_outcome;
using backend_api::renew_request;
using backends::local::holder_id;
using backends::local::notice_kind;

namespace {

constexpr duration short_while = std::chrono::microseconds{200};
/// As in the product.
constexpr duration housekeeping_patience = std::chrono::seconds{2};
constexpr duration burial_patience = std::chrono::milliseconds{20};

request to_message(operation what, const renew_request& asked) {
  return {.what = what,
          .name = asked.name,
          .kind = asked.kind,
          .mode = asked.mode,
          .holder = asked.holder,
          .lease_length = asked.lease_length,
          .token_count = asked.token_count,
          .local_waiters = asked.local_waiters,
          .answer_by = asked.answer_by};
}

request to_message(operation what, const leave_request& asked) {
  return {.what = what,
          .name = asked.name,
          .kind = asked.kind,
          .mode = asked.mode,
          .holder = asked.holder,
          .answer_by = asked.answer_by};
}

}  // namespace

local_driver::local_driver(context& shared, process& owner, local_node& node, std::uint64_t number)
    : shared_(shared), owner_(owner), node_(node), number_(number) {
  capabilities_.fencing = true;
  capabilities_.fifo = true;
  capabilities_.direct_handoff = true;
}

local_driver::~local_driver() { die(); }

void local_driver::die() {
  if (std::exchange(dead_, true)) return;
  if (self_ != 0) node_.client_died(self_);
}

void local_driver::connect() { open(); }

void local_driver::open() {
  if (!node_.gate_shut()) self_ = node_.add_client(*this, number_);
  if (self_ == 0) {
    owner_.later(draw_between(shared_.random, duration{0}, shared_.plan.lease / 4),
                 [this] { open(); });
    return;
  }
  for (const lock_name& each : names_watched_) (void)node_.watch(self_, each, true);
  const time_point until = owner_.now() + housekeeping_patience;
  for (const client_number each : node_.some_dead()) bury(each, until);
}

// ---- requests --------------------------------------------------------------------------------------

void local_driver::acquire(const acquire_request& asked) {
  submit({.what = operation::acquire,
          .name = asked.name,
          .kind = asked.kind,
          .mode = asked.mode,
          .holder = asked.holder,
          .lease_length = asked.lease_length,
          .claim_window = asked.claim_window,
          .ticket_length = asked.ticket_length,
          .may_wait = asked.may_wait,
          .permits = asked.permits,
          .token_count = asked.token_count,
          .local_waiters = asked.local_waiters,
          .value = std::string{asked.value},
          .answer_by = asked.answer_by});
}

void local_driver::renew(std::span<const renew_request> batch) {
  for (const renew_request& each : batch) submit(to_message(operation::renew, each));
}

void local_driver::release(const leave_request& asked) {
  submit(to_message(operation::release, asked));
}

void local_driver::withdraw(const leave_request& asked) {
  submit(to_message(operation::withdraw, asked));
}

void local_driver::downgrade(const renew_request& asked) {
  submit(to_message(operation::downgrade, asked));
}

void local_driver::set_value(const renew_request& holder, std::string_view value,
                             backend_api::completion<bool> done) {
  request message = to_message(operation::set_value, holder);
  message.value = value;
  submit(std::move(message), std::move(done));
}

void local_driver::submit(request asked, backend_api::completion<bool> done) {
  if (dead_) return;
  asked.sent_at = shared_.loop.now();
  const time_point answer_by = asked.answer_by;
  const std::uint64_t number = next_number_++;
  pending_.emplace(number, call{std::move(asked), std::move(done)});
  attempt(number);
  const auto found = pending_.find(number);
  if (found == pending_.end() || found->second.committed) return;
  owner_.at_local_time(answer_by, [this, number] {
    const auto late = pending_.find(number);
    if (late == pending_.end() || late->second.committed) return;
    const call one = std::move(late->second);
    pending_.erase(late);
    shared_.count.add(counter::gate_timeout);
    fail(one, {make_error_code(errc::unavailable), "simulated"});
  });
}

void local_driver::attempt(std::uint64_t number) {
  const auto found = pending_.find(number);
  if (dead_ || found == pending_.end()) return;
  const auto again = [this, number, alive = owner_.weak_from_this()] {
    if (const auto self = alive.lock()) self->run([this, number] { attempt(number); });
  };
  // The rest of a step whose process was stopped in the middle is done when it goes on.
  if (owner_.frozen()) {
    owner_.run([this, number] { attempt(number); });
    return;
  }
  if (self_ == 0) {
    const call one = std::move(found->second);
    pending_.erase(found);
    fail(one, {make_error_code(errc::unavailable), "simulated"});
    return;
  }
  if (node_.gate_shut()) {
    node_.wait_for_gate(again);
    return;
  }
  if (shared_.strikes(fault::stop_in_gate)) {
    stop_in_gate(number);
    return;
  }
  perform(number, owner_.now());
}

void local_driver::freeze_for_a_while() {
  if (!owner_.freeze()) return;
  shared_.loop.after(draw_between(shared_.random, duration{0}, 2 * shared_.plan.lease),
                     [alive = owner_.weak_from_this()] {
                       if (const auto self = alive.lock()) self->thaw();
                     });
}

void local_driver::stop_in_gate(std::uint64_t number) {
  shared_.count.add(counter::stopped_in_gate);
  shared_.note("process # is stopped inside the gate", static_cast<std::int64_t>(number_));
  // The time may have been read before or after.
  const bool stale = shared_.random.chance(0.5);
  const time_point when = owner_.now();
  pending_.at(number).committed = true;  // in the gate nobody looks at the clock any more
  node_.shut_gate(self_);
  freeze_for_a_while();
  owner_.run([this, number, stale, when] {
    // Others come in when this process has left, which is before it tells anybody.
    perform(number, stale ? when : owner_.now());
    if (!dead_) node_.open_gate();
  });
}

void local_driver::perform(std::uint64_t number, time_point when) {
  const request asked = pending_.at(number).asked;
  enum class moment : std::uint8_t { none, uncommitted, untold, half_told };
  auto dies = moment::none;
  if (shared_.strikes(fault::kill_in_transaction)) {
    dies = static_cast<moment>(1 + shared_.random.below(3));
  }
  if (dies == moment::uncommitted) {
    shared_.count.add(counter::killed_uncommitted);
    node_.kill(owner_);
    return;
  }
  std::vector<local_node::notice> notices;
  auto said = node_.execute(asked, self_, contenders_.known(asked.holder), when, notices);
  if (dies != moment::none) {
    const bool some = dies == moment::half_told && notices.size() > 1;
    shared_.count.add(some ? counter::killed_half_told : counter::killed_untold);
    if (some) node_.distribute(notices, self_, 1 + shared_.random.below(notices.size() - 1));
    node_.kill(owner_);
    return;
  }
  if (!said) {
    node_.distribute(notices, self_);  // of what was served before it failed
    const call one = std::move(pending_.at(number));
    pending_.erase(number);
    fail(one, said.error());
    return;
  }
  pending_.at(number).committed = true;
  if (shared_.strikes(fault::stop_after_commit)) {
    shared_.count.add(counter::stopped_untold);
    freeze_for_a_while();
    owner_.run([this, number, said = std::move(*said), notices = std::move(notices)] {
      conclude(number, said, notices);
    });
    return;
  }
  conclude(number, *said, notices);
}

void local_driver::conclude(std::uint64_t number, const local_node::outcome& said,
                            const std::vector<local_node::notice>& notices) {
  const call one = std::move(pending_.at(number));
  pending_.erase(number);
  node_.distribute(notices, self_);
  if (base::planted(base::defect::trouble_told_as_nothing) &&
      shared_.strikes(fault::commit_fails)) {
    fail(one, {make_error_code(errc::unavailable), "simulated"});
    return;
  }
  const holder_id who = one.asked.holder;
  if (one.asked.what == operation::withdraw || one.asked.what == operation::release) {
    contenders_.left(who, one.asked.what == operation::withdraw, std::get<leave_answer>(said.says));
  } else if (said.number != 0) {
    contenders_.remember(who, said.number, said.in_the_way);
  }
  give(one, said.says);
  for (const local_node::notice& each : notices) {
    if (!dead_ && each.client == self_) deliver(each);
  }
}

void local_driver::give(const call& one, const answer& says) {
  const holder_id who = one.asked.holder;
  switch (one.asked.what) {
    case operation::acquire:
      listener_->acquire_answered(who, std::get<base::result<backend_api::acquire_answer>>(says));
      break;
    case operation::renew: {
      std::array<renew_outcome, 1> outcomes{
          {{who, std::get<base::result<backend_api::renew_answer>>(says)}}};
      listener_->renewals_answered(outcomes);
      break;
    }
    case operation::release:
    case operation::withdraw:
      listener_->leave_answered(who, std::get<leave_answer>(says));
      break;
    case operation::downgrade:
      listener_->downgrade_answered(who, std::get<base::result<backend_api::renew_answer>>(says));
      break;
    case operation::set_value:
      one.done(std::get<bool>(says));
      break;
  }
}

void local_driver::fail(const call& one, const base::failure& why) {
  if (why.code == errc::unavailable) shared_.count.add(counter::answer_unavailable);
  const tl::unexpected<base::failure> error(why);
  switch (one.asked.what) {
    case operation::acquire:
      listener_->acquire_answered(one.asked.holder, error);
      break;
    case operation::renew: {
      std::array<renew_outcome, 1> outcomes{{{one.asked.holder, error}}};
      listener_->renewals_answered(outcomes);
      break;
    }
    case operation::release:
    case operation::withdraw:
      listener_->leave_answered(one.asked.holder, error);
      break;
    case operation::downgrade:
      listener_->downgrade_answered(one.asked.holder, error);
      break;
    case operation::set_value:
      one.done(error);
      break;
  }
}

void local_driver::answer_overdue() {
  // Each waiting call has a timer, which comes with the other late steps.
}

// ---- what comes from outside -----------------------------------------------------------------------

void local_driver::post(const local_node::notice& what) {
  duration delay = draw_around(shared_.random, shared_.plan.message_delay / 4);
  if (shared_.strikes(fault::slow_notice)) {
    shared_.count.add(counter::notice_slow);
    delay = draw_between(shared_.random, duration{0}, shared_.plan.lease);
  }
  owner_.later(delay, [this, what] { deliver(what); });
}

void local_driver::deliver(const local_node::notice& what) {
  switch (what.kind) {
    case notice_kind::granted:
      listener_->granted_notice(what.holder, what.grant);
      break;
    case notice_kind::look:
      shared_.count.add(counter::look_told);
      listener_->granted_notice(what.holder, std::nullopt);
      break;
    case notice_kind::lost:
      listener_->lost_notice(what.holder);
      break;
    case notice_kind::changed:
      listener_->changed_notice(lock_name(what.name));
      break;
  }
}

bool local_driver::begin_watching(client_number peer) {
  watched_.insert(peer);
  if (node_.dead(peer)) hear_of_death(peer);
  return true;
}

void local_driver::end_watching(client_number peer) noexcept { watched_.erase(peer); }

void local_driver::hear_of_death(client_number who) {
  if (!watched_.contains(who)) return;
  owner_.later(draw_between(shared_.random, duration{0}, short_while),
               [this, who] { peer_died(who); });
}

void local_driver::peer_died(client_number who) {
  if (!watched_.contains(who)) return;
  shared_.count.add(counter::death_heard);
  for (const holder_id& waiter : contenders_.died(who)) {
    if (!dead_) listener_->granted_notice(waiter, std::nullopt);
  }
  bury(who, owner_.now() + burial_patience);
}

void local_driver::bury(client_number who, time_point until) {
  if (dead_) return;
  if (owner_.frozen() || node_.gate_shut()) {
    if (owner_.now() >= until) return;
    owner_.later(draw_between(shared_.random, duration{0}, shared_.plan.lease / 8),
                 [this, who, until] { bury(who, until); });
    return;
  }
  const auto removed = node_.remove_client(who);
  if (!removed || !*removed) return;
  shared_.count.add(counter::buried);
  if (shared_.strikes(fault::kill_in_transaction)) {
    node_.kill(owner_);
    return;
  }
  node_.sweep();
}

// ---- the rest --------------------------------------------------------------------------------------

void local_driver::watch(const lock_name& name, bool on) {
  if (on) {
    names_watched_.insert(name);
  } else {
    names_watched_.erase(name);
  }
  if (self_ != 0 && !node_.gate_shut()) (void)node_.watch(self_, name, on);
}

void local_driver::list(std::string_view, std::string_view, std::size_t,
                        backend_api::completion<std::vector<lock_info>> done) {
  done(base::fail(errc::not_supported));
}

void local_driver::who(const lock_name&, backend_api::completion<std::optional<lock_info>> done) {
  done(base::fail(errc::not_supported));
}

void local_driver::break_lock(const lock_name&, fencing_token, backend_api::break_mode,
                              backend_api::completion<std::monostate> done) {
  done(base::fail(errc::not_supported));
}

backend_api::drive_outcome local_driver::drive(backend_api::drive_ticket&, time_point) {
  return backend_api::drive_outcome::not_driven;
}

}  // namespace sallyport::sim
