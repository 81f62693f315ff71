#include "sim/sim_backend.hpp"

#include "base/planted.hpp"
#include "sim/process.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace sallyport::sim {

using backend_api::acquire_request;
using backend_api::holder_id;
using backend_api::leave_request;
using backend_api::renew_outcome;
using backend_api::renew_request;
using backends::memory::notice;
using backends::memory::notice_kind;

namespace {

constexpr duration short_while = std::chrono::microseconds{200};

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

sim_backend::sim_backend(context& shared, process& owner, std::shared_ptr<link> connections)
    : shared_(shared), owner_(owner), link_(std::move(connections)) {
  capabilities_.fencing = true;
  capabilities_.fifo = true;
  capabilities_.direct_handoff = true;
  link_->attach(this);
}

sim_backend::sim_backend(context& shared, process& owner, store_node& store, std::uint64_t client)
    : sim_backend(shared, owner, std::make_shared<link>(shared, store, client)) {
  store_ = &store;
  client_ = client;
  store.subscribe(client, link_);
}

sim_backend::~sim_backend() { link_->attach(nullptr); }

void sim_backend::connect() {
  link_->connect_after(draw_between(shared_.random, duration{0}, short_while));
}

void sim_backend::acquire(const acquire_request& asked) {
  request message{.what = operation::acquire,
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
                  .answer_by = asked.answer_by,
                  .asked_before = asked.asked_before};
  send({std::move(message)});
}

void sim_backend::renew(std::span<const renew_request> batch) {
  std::vector<request> messages;
  messages.reserve(batch.size());
  for (const renew_request& each : batch) messages.push_back(to_message(operation::renew, each));
  send(std::move(messages));
}

void sim_backend::release(const leave_request& asked) {
  send({to_message(operation::release, asked)});
}

void sim_backend::withdraw(const leave_request& asked) {
  if (unknown_.contains(asked.holder)) shared_.count.add(counter::withdrawal_after_unknown);
  send({to_message(operation::withdraw, asked)});
}

void sim_backend::downgrade(const renew_request& asked) {
  send({to_message(operation::downgrade, asked)});
}

void sim_backend::set_value(const renew_request& holder, std::string_view value,
                            backend_api::completion<bool> done) {
  request message = to_message(operation::set_value, holder);
  message.value = value;
  send({std::move(message)}, done);
}

void sim_backend::send(std::vector<request> batch, const backend_api::completion<bool>& done) {
  if (!link_->connected()) {
    refuse(batch, done);
    return;
  }
  for (request& each : batch) {
    each.number = next_number_++;
    each.sent_at = shared_.loop.now();
    if (shared_.plan.single_tokens && each.token_count > 1) {
      each.token_count = 1;
      shared_.count.add(counter::single_token_draw);
    }
    encode(each);
    pending_.emplace(each.number, waiting_call{.what = each.what,
                                               .holder = each.holder,
                                               .answer_by = each.answer_by,
                                               .connection = link_->epoch(),
                                               .done = done});
    arm(each.number, each.answer_by);
  }
  link_->send(std::move(batch));
}

void sim_backend::refuse(const std::vector<request>& batch,
                         const backend_api::completion<bool>& done) {
  std::vector<waiting_call> calls;
  for (const request& each : batch) {
    calls.push_back({.what = each.what, .holder = each.holder, .done = done});
    shared_.count.add(counter::answer_unavailable);
  }
  // A backend may answer from inside of the call, or a moment later.
  if (shared_.random.chance(0.3)) {
    for (waiting_call& each : calls) fail(each, errc::unavailable);
    return;
  }
  ++unsent_;
  owner_.later(draw_between(shared_.random, duration{0}, short_while),
               [this, calls = std::move(calls)]() mutable {
                 --unsent_;
                 for (waiting_call& each : calls) fail(each, errc::unavailable);
               });
}

void sim_backend::fail(waiting_call& call, const base::failure& why) {
  const tl::unexpected<base::failure> error(why);
  if (why.code == errc::outcome_unknown) {
    shared_.count.add(counter::answer_unknown);
    if (call.what == operation::acquire) unknown_.insert(call.holder);
  }
  switch (call.what) {
    case operation::acquire:
      listener_->acquire_answered(call.holder, error);
      break;
    case operation::renew: {
      std::array<renew_outcome, 1> one{{{call.holder, error}}};
      listener_->renewals_answered(one);
      break;
    }
    case operation::release:
    case operation::withdraw:
      listener_->leave_answered(call.holder, error);
      break;
    case operation::downgrade:
      listener_->downgrade_answered(call.holder, error);
      break;
    case operation::set_value:
      call.done(error);
      break;
  }
}

void sim_backend::arm(std::uint64_t number, time_point answer_by) {
  owner_.at_local_time(answer_by, [this, number] {
    const auto found = pending_.find(number);
    if (found == pending_.end()) return;
    if (owner_.now() < found->second.answer_by) {
      arm(number, found->second.answer_by);
      return;
    }
    waiting_call call = std::move(found->second);
    pending_.erase(found);
    fail(call, errc::outcome_unknown);
    // A connection that does not answer is given up by some clients, and trusted again by others.
    if (shared_.random.chance(0.5)) link_->reset();
  });
}

void sim_backend::answer_overdue() {
  std::vector<waiting_call> overdue;
  for (auto each = pending_.begin(); each != pending_.end();) {
    if (each->second.answer_by <= owner_.now()) {
      overdue.push_back(std::move(each->second));
      each = pending_.erase(each);
    } else {
      ++each;
    }
  }
  for (waiting_call& each : overdue) fail(each, errc::outcome_unknown);
}

void sim_backend::replies_arrive(std::vector<reply> batch) {
  owner_.run([this, batch = std::move(batch)]() mutable { take(batch); });
}

void sim_backend::take(std::vector<reply>& batch) {
  std::vector<renew_outcome> renewals;
  for (reply& each : batch) {
    if (each.left_rest) serve_rest(each);
    const auto found = pending_.find(each.number);
    if (found == pending_.end() || !decode(each)) continue;
    waiting_call call = std::move(found->second);
    pending_.erase(found);
    if (each.in_trouble) {
      fail(call, word_for_trouble(each.what));
      continue;
    }
    if (each.failed) {
      fail(call, *each.failed);
      continue;
    }
    switch (each.what) {
      case operation::acquire:
        listener_->acquire_answered(
            each.holder, std::move(std::get<base::result<backend_api::acquire_answer>>(each.says)));
        break;
      case operation::renew:
        renewals.push_back(
            {each.holder, std::move(std::get<base::result<backend_api::renew_answer>>(each.says))});
        break;
      case operation::release:
      case operation::withdraw:
        listener_->leave_answered(each.holder, std::get<backend_api::leave_answer>(each.says));
        break;
      case operation::downgrade:
        listener_->downgrade_answered(
            each.holder, std::move(std::get<base::result<backend_api::renew_answer>>(each.says)));
        break;
      case operation::set_value:
        call.done(std::get<bool>(each.says));
        break;
    }
  }
  const std::span<renew_outcome> all{renewals};
  const std::size_t first_part = all.empty() ? 0 : shared_.random.below(all.size() + 1);
  if (first_part > 0) listener_->renewals_answered(all.first(first_part));
  if (first_part < all.size()) listener_->renewals_answered(all.subspan(first_part));
}

errc sim_backend::word_for_trouble(operation what) {
  if (base::planted(base::defect::trouble_told_as_nothing)) return errc::unavailable;
  // The one request of which "nothing happened" may be said all the same: whoever did not hear that it
  // was renewed counts from before.
  const bool harmless = what == operation::renew && shared_.random.chance(0.5);
  return harmless ? errc::unavailable : errc::outcome_unknown;
}

void sim_backend::notice_arrives(const notice& what) {
  owner_.run([this, what] {
    switch (what.kind) {
      case notice_kind::granted:
        listener_->granted_notice(what.holder, what.grant);
        break;
      case notice_kind::lost:
        listener_->lost_notice(what.holder);
        break;
      case notice_kind::changed:
        listener_->changed_notice(what.name);
        break;
    }
  });
}

void sim_backend::connection_ends(std::uint64_t ended) {
  owner_.run([this, ended] {
    std::vector<waiting_call> unanswered;
    for (auto each = pending_.begin(); each != pending_.end();) {
      if (each->second.connection <= ended) {
        unanswered.push_back(std::move(each->second));
        each = pending_.erase(each);
      } else {
        ++each;
      }
    }
    for (waiting_call& each : unanswered) fail(each, errc::outcome_unknown);
  });
}

void sim_backend::connection_begins() {
  owner_.run([this] { listener_->reconnected(); });
}

bool sim_backend::asked_since(const holder_id& who, std::uint64_t number) const {
  return std::any_of(pending_.upper_bound(number), pending_.end(),
                     [&](const auto& each) { return each.second.holder == who; });
}

void sim_backend::watch(const lock_name& name, bool on) { store_->watch(client_, name, on); }

void sim_backend::list(std::string_view, std::string_view, std::size_t,
                       backend_api::completion<std::vector<lock_info>> done) {
  done(base::fail(errc::not_supported));
}

void sim_backend::who(const lock_name&, backend_api::completion<std::optional<lock_info>> done) {
  done(base::fail(errc::not_supported));
}

void sim_backend::break_lock(const lock_name&, fencing_token, backend_api::break_mode,
                             backend_api::completion<std::monostate> done) {
  done(base::fail(errc::not_supported));
}

backend_api::drive_outcome sim_backend::drive(backend_api::drive_ticket&, time_point) {
  return backend_api::drive_outcome::not_driven;
}

void sim_backend::close() { link_->attach(nullptr); }

}  // namespace sallyport::sim
