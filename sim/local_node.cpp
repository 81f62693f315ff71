#include "sim/local_node.hpp"

#include "sim/local_driver.hpp"
#include "sim/process.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <chrono>

namespace sallyport::sim {

using backends::local::client_record;
using backends::local::holding_record;
using backends::local::lock_record;
using backends::local::lock_rules;
using backends::local::map_table;
using backends::local::notice_kind;
using backends::local::number_of;
using backends::local::read_record;
using backends::local::record_key;
using backends::local::ticket_record;

namespace {

constexpr std::size_t names_at_a_time = 2;
constexpr std::size_t clients_at_a_time = 4;

/// How long it may take until everybody knows what a change means: the kernel tells of a death, a
/// waiter asks, and others hear of what that changed.
duration promptness(const options& plan) {
  return std::chrono::milliseconds{2} + 4 * plan.message_delay;
}

/// A notice of a change says its own name; the others are found by their holder.
backends::memory::notice_kind kind_of(notice_kind kind) {
  switch (kind) {
    case notice_kind::granted:
      return backends::memory::notice_kind::granted;
    case notice_kind::lost:
      return backends::memory::notice_kind::lost;
    case notice_kind::look:
    case notice_kind::changed:
      break;
  }
  return backends::memory::notice_kind::changed;
}

backend_api::renew_request to_renewal(const request& asked) {
  return {.name = asked.name,
          .kind = asked.kind,
          .mode = asked.mode,
          .holder = asked.holder,
          .lease_length = asked.lease_length,
          .token_count = asked.token_count,
          .local_waiters = asked.local_waiters,
          .answer_by = asked.answer_by};
}

}  // namespace

local_node::local_node(context& shared, checkers& checks)
    : shared_(shared),
      checks_(checks),
      tokens_at_once_(1 + shared.random.below(200)),
      // One draw for both: what other seeds draw stays as it was.
      most_waiters_(tokens_at_once_ % 3 == 0 ? 1 + tokens_at_once_ % 2
                                             : backends::local::most_waiters_at_once) {
  initialise();
}

void local_node::initialise() {
  map_table fresh(records_);
  lock_rules::initialise(fresh, reserved_on_disk_);
  fresh.commit();
}

void local_node::lose_power() {
  records_.clear();
  process_of_.clear();
  in_gate_ = 0;
  at_gate_.clear();
  checks_.store.everything_gone();
  initialise();
}

std::unique_ptr<store_driver> local_node::open(process& owner, std::uint64_t client) {
  return std::make_unique<local_driver>(shared_, owner, *this, client);
}

template <class Operate>
auto local_node::transact(time_point when, std::vector<notice>& notices, Operate operate)
    -> base::result<std::invoke_result_t<Operate&, lock_rules&>> {
  map_table inside(records_);
  lock_rules rules({inside, *this, *this, when, notices, "machine", most_waiters_});
  auto said = operate(rules);
  rules.finish();
  unserved_.clear();
  if (!inside.failed() && rules.changed_anything() && shared_.strikes(fault::commit_fails)) {
    shared_.count.add(counter::commit_failed);
    const bool full = shared_.random.chance(0.5);
    inside.fail({make_error_code(full ? errc::store_refused : errc::unavailable), "simulated"});
  }
  if (inside.failed()) {
    notices.clear();
    return tl::unexpected(*inside.why_failed());
  }
  inside.commit();
  unserved_ = rules.unserved();
  ask_again_ = rules.ask_again();
  return said;
}

void local_node::serve_on(time_point when, std::vector<notice>& notices) {
  for (std::vector<std::string> left = std::exchange(unserved_, {}); !left.empty();) {
    shared_.count.add(counter::served_on);
    std::vector<notice> more;
    const auto served = transact(when, more, [&](lock_rules& rules) {
      rules.serve_on(left.back());
      return true;
    });
    if (!served) return;
    report(more, when);
    notices.insert(notices.end(), more.begin(), more.end());
    if (unserved_.empty()) left.pop_back();
  }
}

// ---- the kernel and the disk -----------------------------------------------------------------------

bool local_node::dead(client_number who, backends::local::table& inside) {
  return !inside.get(record_key::client(who)) || dead(who);
}

base::result<std::uint64_t> local_node::reserve(std::uint64_t beyond) {
  if (shared_.strikes(fault::reserve_fails)) {
    shared_.count.add(counter::reserve_failed);
    return base::fail(errc::store_refused, "simulated");
  }
  reserved_on_disk_ = std::max(reserved_on_disk_, beyond) + tokens_at_once_;
  return reserved_on_disk_;
}

local_node::client_number local_node::add_client(local_driver& whose,
                                                 std::uint64_t process_number) {
  std::vector<notice> notices;
  const auto number = transact(now(), notices, [&](lock_rules& rules) {
    client_record who;
    who.process = {static_cast<std::int64_t>(process_number), 1};
    return rules.add_client(who, {});
  });
  if (!number) return 0;
  drivers_[*number] = &whose;
  process_of_[*number] = process_number;
  return *number;
}

void local_node::client_died(client_number who) {
  drivers_.erase(who);
  checks_.store.client_gone(process_of_[who]);
  if (in_gate_ == who) open_gate();
  changed();
  for (const auto& [client, driver] : drivers_) driver->hear_of_death(who);
}

void local_node::open_gate() {
  in_gate_ = 0;
  for (const auto& turn : std::exchange(at_gate_, {})) turn();
}

// ---- transactions ----------------------------------------------------------------------------------

base::result<local_node::outcome> local_node::execute(const request& asked, client_number from,
                                                      contender_number known, time_point when,
                                                      std::vector<notice>& notices) {
  const backend_api::leave_request leave{.name = asked.name,
                                         .kind = asked.kind,
                                         .mode = asked.mode,
                                         .holder = asked.holder,
                                         .answer_by = {}};
  name_of_.try_emplace(asked.holder, asked.name);
  auto said = transact(when, notices, [&](lock_rules& rules) -> outcome {
    switch (asked.what) {
      case operation::acquire: {
        auto one = rules.acquire({.name = asked.name,
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
                                  .value = asked.value,
                                  .answer_by = asked.answer_by},
                                 from, known);
        if (!one) return {base::result<backend_api::acquire_answer>(tl::unexpected(one.error()))};
        return {base::result<backend_api::acquire_answer>(one->answer), one->number,
                std::move(one->in_the_way)};
      }
      case operation::renew: {
        auto one = rules.renew(to_renewal(asked), known);
        return {base::result<backend_api::renew_answer>(one.answer), one.number,
                std::move(one.in_the_way)};
      }
      case operation::release:
        return {rules.release(leave, known)};
      case operation::withdraw:
        return {rules.withdraw(leave, known)};
      case operation::downgrade: {
        auto one = rules.downgrade(to_renewal(asked), known);
        if (!one) return {base::result<backend_api::renew_answer>(tl::unexpected(one.error()))};
        return {base::result<backend_api::renew_answer>(one->answer)};
      }
      case operation::set_value:
        return {rules.set_value(to_renewal(asked), asked.value, known)};
    }
    return {false};
  });
  shared_.note("process # runs operation # for lock #, ticket #",
               static_cast<std::int64_t>(process_of_[from]), static_cast<std::int64_t>(asked.what),
               static_cast<std::int64_t>(shared_.index_of(asked.name)),
               static_cast<std::int64_t>(asked.holder.low % 10'000));
  if (!said) {
    shared_.note("  it failed with #", said.error().code.value());
    return said;
  }
  if (ask_again_) {
    // Nobody hears this answer.
    report(notices, when);
    serve_on(when, notices);
    std::vector<notice> more;
    auto again = execute(asked, from, known, when, more);
    notices.insert(notices.end(), more.begin(), more.end());
    return again;
  }
  checks_.store.executed(asked, process_of_[from], said->says, for_checkers(notices), when);
  const bool only_asks = asked.what == operation::acquire || asked.what == operation::renew;
  if (!only_asks || !notices.empty()) changed();
  serve_on(when, notices);
  return said;
}

std::vector<backends::memory::notice> local_node::for_checkers(
    const std::vector<notice>& notices) const {
  std::vector<backends::memory::notice> known;
  for (const notice& each : notices) {
    if (each.kind != notice_kind::granted && each.kind != notice_kind::lost) continue;
    // What is granted to the dead is nobody's turn.
    if (dead(each.client)) continue;
    known.push_back({process_of_.at(each.client), kind_of(each.kind), each.holder, each.grant,
                     name_of_.at(each.holder)});
  }
  return known;
}

void local_node::report(const std::vector<notice>& notices, time_point when) {
  checks_.store.noticed(for_checkers(notices), when);
}

base::result<bool> local_node::watch(client_number from, const lock_name& name, bool on) {
  std::vector<notice> notices;
  return transact(now(), notices, [&](lock_rules& rules) {
    rules.watch(from, name, on);
    return true;
  });
}

base::result<bool> local_node::remove_client(client_number who) {
  std::vector<notice> notices;
  return transact(now(), notices, [&](lock_rules& rules) { return rules.remove_client(who); });
}

void local_node::sweep() {
  std::optional<std::string> after = "";
  do {
    std::vector<notice> notices;
    const auto swept = transact(
        now(), notices, [&](lock_rules& rules) { return rules.sweep(*after, names_at_a_time); });
    if (!swept) return;
    report(notices, now());
    serve_on(now(), notices);
    distribute(notices, 0);
    if (!notices.empty()) changed();
    after = *swept;
  } while (after);
}

std::vector<local_node::client_number> local_node::some_dead() {
  std::vector<notice> notices;
  const std::uint64_t draw = shared_.random();
  const auto some = transact(now(), notices, [&](lock_rules& rules) {
    return rules.some_clients(draw, clients_at_a_time);
  });
  std::vector<client_number> found;
  if (!some) return found;
  for (const backends::local::listed_client& each : *some) {
    if (dead(each.number)) found.push_back(each.number);
  }
  return found;
}

void local_node::distribute(const std::vector<notice>& notices, client_number self,
                            std::size_t limit) {
  std::size_t told = 0;
  for (const notice& each : notices) {
    if (each.client == self) continue;
    if (told++ >= limit) return;
    const auto found = drivers_.find(each.client);
    if (found == drivers_.end()) continue;
    if (shared_.strikes(fault::lose_notice)) {
      shared_.count.add(counter::local_notice_lost);
      continue;
    }
    found->second->post(each);
  }
}

void local_node::break_some_grant(const lock_name& name, backend_api::break_mode mode) {
  if (gate_shut()) return;
  std::vector<notice> notices;
  const auto seen = transact(now(), notices, [&](lock_rules& rules) { return rules.who(name); });
  if (!seen) return;
  report(notices, now());
  distribute(notices, 0);
  if (!*seen || (*seen)->holders.empty()) return;
  const std::size_t chosen = shared_.random.below((*seen)->holders.size());
  const fencing_token token = (*seen)->holders[chosen].token;
  notices.clear();
  const auto broken = transact(
      now(), notices, [&](lock_rules& rules) { return rules.break_lock(name, token, mode); });
  if (!broken || !*broken) return;
  shared_.note("the grant of lock # with token # is broken, mode #",
               static_cast<std::int64_t>(shared_.index_of(name)),
               static_cast<std::int64_t>(token.value()), static_cast<std::int64_t>(mode));
  shared_.count.add(mode == backend_api::break_mode::safe ? counter::broken_safely
                                                          : counter::broken_at_once);
  report(notices, now());
  distribute(notices, 0);
}

local_node::standing local_node::look_at(const lock_name& name) const {
  standing all;
  const auto found = records_.find(std::string_view(record_key::lock(name.text())));
  if (found == records_.end()) return all;
  const std::string_view value = found->second;
  const auto record = *read_record<lock_record>(value);
  const bool sole = record.kind == lock_kind::mutex || record.kind == lock_kind::election;
  if (sole && record.holders > 0) {
    all.holders.push_back(*read_record<holding_record>(value.substr(sizeof(lock_record))));
  }
  const auto each_of = [&](const record_key& first, const auto& visit) {
    for (auto at = records_.lower_bound(std::string_view(first));
         at != records_.end() && at->first.starts_with(first.range()); ++at) {
      visit(at->second);
    }
  };
  each_of(record_key::holder(name.text()), [&](std::string_view bytes) {
    all.holders.push_back(*read_record<holding_record>(bytes));
  });
  each_of(record_key::ticket(name.text()), [&](std::string_view bytes) {
    all.tickets.push_back(*read_record<ticket_record>(bytes));
  });
  std::erase_if(all.holders, [](const holding_record& one) { return one.tombstone != 0; });
  return all;
}

void local_node::changed() {
  if (!shared_.plan.prompt) return;
  last_change_ = shared_.loop.now();
  shared_.loop.after(promptness(shared_.plan) + local_driver::claims_kept_back,
                     [this, change = last_change_] {
                       if (change == last_change_) check_promptness();
                     });
}

void local_node::check_promptness() {
  shared_.count.add(counter::promptness_checked);
  const duration claimed_after = promptness(shared_.plan) + local_driver::claims_kept_back;
  for (const lock_plan& lock : shared_.plan.locks) {
    const standing all = look_at(lock.name);
    std::vector<client_number> before;
    for (const holding_record& each : all.holders) {
      before.push_back(each.client);
      const duration age = now() - backends::local::time_of(each.since);
      if (each.provisional != 0 && !dead(each.client) && age >= claimed_after) {
        shared_.fail("death", lock.name.text() + ": somebody was handed it and was not told");
      }
    }
    for (const ticket_record& each : all.tickets) {
      const auto mine = drivers_.find(each.client);
      const bool lapsed = backends::local::time_of(each.lapses) <= now();
      if (mine != drivers_.end() && !lapsed) {
        for (const client_number one : before) {
          if (dead(one)) {
            shared_.fail("death", lock.name.text() + ": a waiter did not hear that one died");
          } else if (!mine->second->watches(each.id, one)) {
            shared_.fail("death", lock.name.text() + ": a waiter would not hear if one died");
          }
        }
      }
      before = {each.client};
    }
  }
}

std::size_t local_node::entries_left() {
  std::vector<client_number> all;
  for (const auto& [key, value] : records_) {
    if (key.starts_with('C')) all.push_back(number_of(key));
  }
  for (const client_number each : all) {
    if (dead(each)) (void)remove_client(each);
  }
  sweep();
  std::size_t left = 0;
  for (const auto& [key, value] : records_) {
    const bool of_the_dead = (key[0] == 'C' || key[0] == 'W') && dead(number_of(key));
    if (key[0] == 'L' || key[0] == 'H' || key[0] == 'Q' || of_the_dead) ++left;
  }
  return left;
}

}  // namespace sallyport::sim
