#include "backends/local/lock_rules.hpp"

#include "backends/local/lock_operation.hpp"
#include "base/planted.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

namespace sallyport::backends::local {

using backend_api::acquire_answer;
using backend_api::acquire_request;
using backend_api::break_mode;
using backend_api::gone;
using backend_api::granted;
using backend_api::held;
using backend_api::leave_answer;
using backend_api::leave_request;
using backend_api::renew_answer;
using backend_api::renew_request;
using backend_api::renewed;
using backend_api::token_block;
using base::defect;
using base::planted;
using std::chrono::milliseconds;

namespace {

constexpr std::size_t every_holder = std::numeric_limits<std::size_t>::max();

lock_mode effective_mode(lock_kind kind, lock_mode asked) noexcept {
  return kind == lock_kind::mutex || kind == lock_kind::election ? lock_mode::exclusive : asked;
}

token_block tokens_of(const holding_record& one) noexcept {
  return {fencing_token(one.first_token), fencing_token(one.last_token)};
}

milliseconds shown(duration span) {
  return std::max(std::chrono::duration_cast<milliseconds>(span), milliseconds{0});
}

}  // namespace

// --- The whole store ------------------------------------------------------------------------------

void lock_rules::initialise(table& records, std::uint64_t floor) {
  meta_record fresh;
  fresh.last_token = floor;
  fresh.reserved_token = floor;
  records.put(record_key::meta(), {bytes_of(fresh)});
}

meta_record& lock_rules::meta() {
  if (meta_) return *meta_;
  const auto value = world_.records.get(record_key::meta());
  meta_ = value ? read_record<meta_record>(*value) : std::nullopt;
  if (!meta_ || meta_->format != record_format) {
    world_.records.fail(damaged("the store's own record"));
    meta_.emplace();
  }
  return *meta_;
}

meta_record& lock_rules::change_meta() {
  meta_changed_ = true;
  changed_anything_ = true;
  return meta();
}

token_block lock_rules::draw(std::uint32_t count) {
  meta_record& all = change_meta();
  const fencing_token first(all.last_token + 1);
  all.last_token += count;
  // A failed table knows no counters: what they seem to say is nothing to reserve tokens for.
  if (world_.records.failed()) return {first, fencing_token(all.last_token)};
  if (all.last_token > all.reserved_token && !planted(defect::tokens_not_reserved)) {
    const auto reserved = world_.reserve.reserve(all.last_token);
    if (reserved) {
      all.reserved_token = *reserved;
    } else {
      world_.records.fail(reserved.error());
    }
  }
  return {first, fencing_token(all.last_token)};
}

bool lock_rules::serves_one_more() noexcept {
  if (waiters_served_ == world_.most_waiters) return false;
  ++waiters_served_;
  return true;
}

void lock_rules::put(std::string_view key, std::initializer_list<std::string_view> parts) {
  changed_anything_ = true;
  world_.records.put(key, parts);
}

void lock_rules::remove(std::string_view key) {
  changed_anything_ = true;
  world_.records.remove(key);
}

void lock_rules::finish() {
  if (meta_changed_) world_.records.put(record_key::meta(), {bytes_of(*meta_)});
  meta_changed_ = false;
}

client_number lock_rules::add_client(const client_record& who, std::string_view label,
                                     number_slot slot) {
  client_number& number = change_meta().last_number;
  ++number;
  number += (slot.remainder + slot.divisor - number % slot.divisor) % slot.divisor;
  put(record_key::client(number), {bytes_of(who), label});
  return number;
}

bool lock_rules::remove_client(client_number who) {
  const record_key key = record_key::client(who);
  if (!world_.records.get(key)) return false;
  remove(key);
  if (meta().watches == 0) return true;
  std::string next = "W";
  for (auto at = world_.records.at_or_after(next); at && at->key.starts_with('W');
       at = world_.records.at_or_after(next)) {
    const std::string watch(at->key);
    if (number_of(watch) == who) {
      remove(watch);
      --change_meta().watches;
    }
    next = watch + '\0';
  }
  return true;
}

std::vector<listed_client> lock_rules::some_clients(std::uint64_t random, std::size_t limit) {
  std::vector<listed_client> found;
  const client_number first = random % (meta().last_number + 1);
  client_number next = first;
  bool from_the_start = false;
  while (found.size() < limit) {
    const auto at = world_.records.at_or_after(record_key::client(next));
    if (!at || !at->key.starts_with('C')) {
      if (std::exchange(from_the_start, true)) break;
      next = 0;
      continue;
    }
    const client_number one = number_of(at->key);
    if (from_the_start && one >= first) break;
    if (const auto record = read_record<client_record>(at->value)) found.push_back({one, *record});
    next = one + 1;
  }
  return found;
}

// --- Each request ---------------------------------------------------------------------------------

base::result<placed<acquire_answer>> lock_rules::acquire(const acquire_request& request,
                                                         client_number from,
                                                         contender_number known) {
  operation op(*this, request.name.text());
  op.settle();
  lock_record& lock = op.lock();

  // What only the dead insist on counts no more.
  const bool disagree =
      lock.kind != request.kind ||
      (lock.kind == lock_kind::semaphore && lock.permits != std::max(request.permits, 1U));
  if (op.in_use() && disagree) op.clear_dead(from);
  if (op.in_use() && lock.kind != request.kind) {
    ask_again_ = op.unserved();
    return base::fail(errc::wrong_kind,
                      "the name is in use as a " + std::string(to_string(lock.kind)));
  }
  const auto already_yours = [&](const holding_record& mine) {
    return placed<acquire_answer>{granted{tokens_of(mine), time_of(mine.expiry) - op.now(),
                                          mine.provisional != 0, lock.permits},
                                  mine.number};
  };
  if (auto mine = op.find_holder(known, request.holder)) {
    if (mine->local_waiters != request.local_waiters) {
      mine->local_waiters = request.local_waiters;
      op.save_holder(*mine);
    }
    return already_yours(*mine);
  }
  const auto wait_or_enter = [&](contender_number number, const ticket_record& ticket,
                                 bool looked) -> placed<acquire_answer> {
    std::vector<client_number> in_the_way;
    if (const auto wait = op.wait(number, ticket, request.ticket_length, looked, in_the_way)) {
      return {*wait, number, std::move(in_the_way)};
    }
    return already_yours(*op.find_holder(number, ticket.id));
  };
  if (auto mine = op.find_live_ticket(known, request.holder)) {
    mine->record.lapses = stored(op.now() + request.ticket_length);
    mine->record.claim_window = request.claim_window.count();
    mine->record.token_count = std::max(request.token_count, 1U);
    mine->record.local_waiters = request.local_waiters;
    op.save_ticket(*mine);
    return wait_or_enter(mine->number, mine->record, false);
  }

  const lock_mode mode = effective_mode(request.kind, request.mode);
  const bool contended = op.in_use() && op.barred(mode);
  if (contended) op.clear_dead(from);
  if (!op.in_use()) op.begin_use(request.kind, request.permits);
  const auto no_room = [&] {
    world_.records.claim_room();
    return world_.records.failed();
  };
  // Nobody gets to see this answer: the transaction has failed.
  const placed<acquire_answer> void_answer{held{}};
  if (!op.barred(mode)) {
    if (no_room()) return void_answer;
    const token_block tokens = draw(std::max(request.token_count, 1U));
    holding_record taken;
    taken.id = request.holder;
    taken.number = ++change_meta().last_number;
    taken.client = from;
    taken.first_token = tokens.first.value();
    taken.last_token = tokens.last.value();
    taken.expiry = stored(op.now() + request.lease_length);
    taken.since = stored(op.now());
    taken.local_waiters = request.local_waiters;
    taken.mode = mode;
    op.add_holder(taken, request.value);
    return placed<acquire_answer>{granted{tokens, request.lease_length, false, lock.permits},
                                  taken.number};
  }
  if (!request.may_wait) {
    ask_again_ = op.unserved();
    return placed<acquire_answer>{held{}};
  }
  if (no_room()) return void_answer;

  ticket_record ticket;
  ticket.id = request.holder;
  ticket.client = from;
  ticket.since = stored(op.now());
  ticket.lapses = stored(op.now() + request.ticket_length);
  ticket.claim_window = request.claim_window.count();
  ticket.token_count = std::max(request.token_count, 1U);
  ticket.local_waiters = request.local_waiters;
  ticket.mode = mode;
  const contender_number number = op.enqueue(ticket, request.value);
  return wait_or_enter(number, ticket, contended);
}

placed<renew_answer> lock_rules::renew(const renew_request& request, contender_number known) {
  operation op(*this, request.name.text());
  op.settle();

  const auto extend = [&](holding_record mine) -> placed<renew_answer> {
    mine.expiry = stored(op.now() + request.lease_length);
    mine.provisional = 0;
    mine.local_waiters = request.local_waiters;
    if (request.token_count > 0) {
      const token_block drawn = draw(request.token_count);
      mine.first_token = drawn.first.value();
      mine.last_token = drawn.last.value();
      op.mark_changed();
    }
    op.save_holder(mine);
    return {renewed{tokens_of(mine), request.lease_length}, mine.number};
  };
  if (const auto mine = op.find_holder(known, request.holder)) return extend(*mine);
  if (const auto mine = op.find_live_ticket(known, request.holder)) {
    if (mine->record.local_waiters != request.local_waiters) {
      operation::placed_ticket updated = *mine;
      updated.record.local_waiters = request.local_waiters;
      op.save_ticket(updated);
    }
    std::vector<client_number> in_the_way;
    const duration rest = time_of(mine->record.lapses) - op.now();
    if (const auto wait = op.wait(known, mine->record, rest, false, in_the_way)) {
      return {*wait, known, std::move(in_the_way)};
    }
    return extend(*op.find_holder(known, request.holder));
  }
  return {gone{}};
}

leave_answer lock_rules::release(const leave_request& request, contender_number known) {
  operation op(*this, request.name.text());
  op.settle();

  const auto mine = op.find_holder(known, request.holder);
  if (!mine) return leave_answer::not_there;
  op.drop_holder(*mine);
  op.serve();
  return leave_answer::left;
}

leave_answer lock_rules::withdraw(const leave_request& request, contender_number known) {
  operation op(*this, request.name.text());

  // Leave the queue before it is served: no grant, token or notice for one who no longer wants it.
  if (op.find_live_ticket(known, request.holder)) {
    const auto next = op.ticket_after(known);
    op.drop_ticket(known);
    op.settle();
    op.tell_to_look(next);
    return leave_answer::left;
  }
  op.settle();
  const auto mine = op.find_holder(known, request.holder);
  if (!mine) return leave_answer::not_there;
  op.drop_holder(*mine);
  op.serve();
  return leave_answer::left;
}

base::result<placed<renew_answer>> lock_rules::downgrade(const renew_request& request,
                                                         contender_number known) {
  if (request.kind != lock_kind::shared_mutex) {
    return base::fail(errc::not_supported, "only a shared_mutex can be downgraded");
  }
  operation op(*this, request.name.text());
  op.settle();

  auto mine = op.find_holder(known, request.holder);
  if (!mine || op.lock().kind != lock_kind::shared_mutex) return placed<renew_answer>{gone{}};
  const bool was_exclusive = mine->mode == lock_mode::exclusive;
  mine->mode = lock_mode::shared;
  mine->expiry = stored(op.now() + request.lease_length);
  mine->provisional = 0;
  mine->local_waiters = request.local_waiters;
  if (was_exclusive) {
    --op.lock().barring;
    op.mark_changed();
  }
  op.save_holder(*mine);
  op.rewrite();
  if (was_exclusive) op.serve(false);
  return placed<renew_answer>{renewed{tokens_of(*mine), request.lease_length}, mine->number};
}

bool lock_rules::set_value(const renew_request& holder, std::string_view value,
                           contender_number known) {
  operation op(*this, holder.name.text());
  op.settle();

  const auto mine = op.find_holder(known, holder.holder);
  if (!mine) return false;
  if (op.sole_value() != value) {
    op.sole_value() = value;
    op.save_holder(*mine);
    op.mark_changed();
  }
  return true;
}

base::result<std::monostate> lock_rules::break_lock(const lock_name& name, fencing_token observed,
                                                    break_mode mode) {
  operation op(*this, name.text());
  op.settle();
  op.clear_dead(0);

  if (op.lock().holders == 0) return base::fail(errc::no_such_lock, "nobody holds it");
  bool held_by_somebody = false;
  std::optional<holding_record> broken;
  op.for_each_holder([&](const holding_record& one) {
    if (one.tombstone == 0) held_by_somebody = true;
    const bool breakable = one.tombstone == 0 || mode == break_mode::at_once;
    const bool meant = one.first_token <= observed.value() && observed.value() <= one.last_token;
    if (breakable && meant) broken = one;
    return !broken;
  });
  if (!broken) {
    if (!held_by_somebody) return base::fail(errc::no_such_lock, "its grant was broken already");
    return base::fail(errc::token_mismatch, "it is held under another token");
  }

  if (broken->tombstone == 0) op.tell(broken->client, notice_kind::lost, broken->id);
  switch (mode) {
    case break_mode::safe:
      if (broken->mode == lock_mode::shared) ++op.lock().barring;
      broken->tombstone = 1;
      broken->id = {};
      op.save_holder(*broken);
      op.rewrite();
      op.mark_changed();
      break;
    case break_mode::at_once:
      op.drop_holder(*broken);
      op.serve();
      break;
  }
  return std::monostate{};
}

void lock_rules::watch(client_number client, const lock_name& name, bool on) {
  const record_key key = record_key::watch(name.text(), client);
  const bool there = world_.records.get(key).has_value();
  if (on == there) return;
  if (on) {
    put(key, {});
    ++change_meta().watches;
  } else {
    remove(key);
    --change_meta().watches;
  }
}

// --- Looking --------------------------------------------------------------------------------------

std::optional<lock_info> lock_rules::describe(std::string_view name) {
  operation op(*this, name);
  op.settle();
  if (!op.in_use()) return std::nullopt;

  // False: the client is dead.
  const auto describe_client = [&](client_number number, auto& info) {
    if (world_.kernel.dead(number, world_.records)) return false;
    const auto value = world_.records.get(record_key::client(number));
    const auto client = value ? read_record<client_record>(*value) : std::nullopt;
    if (!client) return false;
    info.pid = client->process.pid;
    info.label = value->substr(sizeof(client_record));
    info.host = world_.host;
    return true;
  };
  lock_info all;
  all.name = name;
  all.kind = op.lock().kind;
  all.permits = op.lock().permits;
  op.for_each_holder([&](const holding_record& one) {
    if (one.tombstone != 0) {
      const auto rest = std::chrono::ceil<milliseconds>(time_of(one.expiry) - op.now());
      all.closed_for = std::max(all.closed_for, rest);
      return true;
    }
    holder_info holder;
    if (!describe_client(one.client, holder)) return true;
    holder.token = fencing_token(one.first_token);
    holder.mode = one.mode;
    if (all.kind == lock_kind::election) holder.value = op.sole_value();
    holder.held_for = shown(op.now() - time_of(one.since));
    holder.remaining = shown(time_of(one.expiry) - op.now());
    holder.local_waiters = one.local_waiters;
    holder.claimed = one.provisional == 0;
    all.holders.push_back(std::move(holder));
    return true;
  });
  for (auto at = op.first_ticket(); at; at = op.ticket_after(at->number)) {
    const ticket_record& one = at->record;
    waiter_info waiter;
    if (time_of(one.lapses) <= op.now() || !describe_client(one.client, waiter)) continue;
    waiter.mode = one.mode;
    waiter.waited = shown(op.now() - time_of(one.since));
    waiter.local_waiters = one.local_waiters;
    all.waiters.push_back(std::move(waiter));
  }
  if (all.holders.empty() && all.waiters.empty() && all.closed_for == milliseconds{0}) {
    return std::nullopt;
  }
  return all;
}

std::vector<lock_info> lock_rules::list(std::string_view prefix, std::string_view after,
                                        std::size_t limit) {
  std::vector<lock_info> page;
  // The first key that is both behind `after` and not before `prefix`.
  std::string next = "L" + std::string(std::max(prefix, after));
  if (after >= prefix && !after.empty()) next += '\0';
  while (page.size() < limit) {
    const auto at = world_.records.at_or_after(next);
    if (!at || !at->key.starts_with('L') || !at->key.substr(1).starts_with(prefix)) break;
    const std::string name(at->key.substr(1));
    if (auto one = describe(name)) page.push_back(std::move(*one));
    next = "L" + name + '\0';
  }
  return page;
}

void lock_rules::serve_on(std::string_view name) {
  operation op(*this, name);
  op.settle();
  // Without those who died since somebody looked, and would be given what they can't claim.
  op.serve(true);
}

std::optional<std::string> lock_rules::sweep(std::string_view after, std::size_t limit) {
  std::string done_with(after);
  for (std::size_t done = 0; done < limit; ++done) {
    const auto at = world_.records.at_or_after("L" + done_with + '\0');
    if (!at || !at->key.starts_with('L')) return std::nullopt;
    std::string name(at->key.substr(1));
    operation op(*this, name);
    op.settle();
    for (auto each = op.first_ticket(); each; each = op.ticket_after(each->number)) {
      const bool lapsed = time_of(each->record.lapses) <= op.now();
      if (!lapsed && !world_.kernel.dead(each->record.client, world_.records)) continue;
      if (!serves_one_more()) return done_with;
      op.drop_ticket(each->number);
      op.tell_to_look(op.ticket_after(each->number));
    }
    op.remind();
    op.clear_dead(0, every_holder);
    done_with = std::move(name);
  }
  return done_with;
}

}  // namespace sallyport::backends::local
