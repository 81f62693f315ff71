#include "backends/local/lock_operation.hpp"

#include <sallyport/error.hpp>

#include <algorithm>
#include <chrono>

namespace sallyport::backends::local {

using backend_api::granted;
using backend_api::token_block;
using backend_api::waiting;
using base::defect;
using base::planted;

namespace {

constexpr duration shortest_ask_again = std::chrono::milliseconds{1};

}  // namespace

base::failure damaged(std::string_view what) {
  return {make_error_code(errc::store_refused),
          "the store is damaged: " + std::string(what) +
              "; stop all programs that use it, and the next one to start sets it aside"};
}

void lock_rules::operation::read(std::string_view value) {
  const auto lock = read_record<lock_record>(value);
  if (!lock || !sound(*lock)) {
    records().fail(damaged("a lock's record"));
    return;
  }
  lock_ = *lock;
  if (!one_holder_at_most(lock_.kind) || lock_.holders == 0) return;
  value.remove_prefix(sizeof(lock_record));
  sole_ = read_record<holding_record>(value);
  if (!sole_ || !sound(*sole_)) {
    records().fail(damaged("a holder's record"));
    lock_ = {};
    sole_.reset();
    return;
  }
  sole_value_ = value.substr(sizeof(holding_record));
}

void lock_rules::operation::write_back() {
  if (!in_use()) {
    if (in_table_) rules_.remove(key_);
    return;
  }
  if (!dirty_) return;
  if (sole_) {
    rules_.put(key_, {bytes_of(lock_), bytes_of(*sole_), sole_value_});
  } else {
    rules_.put(key_, {bytes_of(lock_)});
  }
}

std::optional<holding_record> lock_rules::operation::find_holder(contender_number number,
                                                                 const holder_id& id) {
  if (number == 0 || lock_.holders == 0) return std::nullopt;
  const auto mine = [&](const holding_record& one) {
    return one.tombstone == 0 && one.number == number && one.id == id;
  };
  if (one_holder_at_most(lock_.kind)) return sole_ && mine(*sole_) ? sole_ : std::nullopt;
  const auto value = records().get(record_key::holder(name_, number));
  if (!value) return std::nullopt;
  const auto found = read_record<holding_record>(*value);
  if (!found || !sound(*found)) {
    records().fail(damaged("a holder's record"));
    return std::nullopt;
  }
  return mine(*found) ? found : std::nullopt;
}

void lock_rules::operation::add_holder(const holding_record& added, std::string_view value) {
  ++lock_.holders;
  if (barring(added)) ++lock_.barring;
  lock_.may_lapse_at =
      lock_.holders == 1 ? added.expiry : std::min(lock_.may_lapse_at, added.expiry);
  dirty_ = true;
  changed_ = true;
  if (one_holder_at_most(lock_.kind)) {
    sole_ = added;
    sole_value_ = value;
  } else {
    rules_.put(record_key::holder(name_, added.number), {bytes_of(added)});
  }
}

void lock_rules::operation::save_holder(const holding_record& one) {
  if (one_holder_at_most(lock_.kind)) {
    sole_ = one;
    lock_.may_lapse_at = one.expiry;
    dirty_ = true;
    return;
  }
  rules_.put(record_key::holder(name_, one.number), {bytes_of(one)});
  if (one.expiry < lock_.may_lapse_at) {
    lock_.may_lapse_at = one.expiry;
    dirty_ = true;
  }
}

void lock_rules::operation::drop_holder(const holding_record& one) {
  if (lock_.holders == 0 || (barring(one) && lock_.barring == 0)) {
    records().fail(damaged("a lock has more holders than it counts"));
    return;
  }
  --lock_.holders;
  if (barring(one)) --lock_.barring;
  dirty_ = true;
  changed_ = true;
  if (one_holder_at_most(lock_.kind)) {
    sole_.reset();
    sole_value_.clear();
  } else {
    rules_.remove(record_key::holder(name_, one.number));
  }
}

std::optional<lock_rules::operation::placed_ticket> lock_rules::operation::ticket_at(
    const std::optional<table::entry>& found) {
  const record_key any = record_key::ticket(name_);
  if (!found || !found->key.starts_with(any.range())) return std::nullopt;
  const auto record = read_record<ticket_record>(found->value);
  if (!record || !sound(*record)) {
    records().fail(damaged("a waiter's record"));
    return std::nullopt;
  }
  return placed_ticket{number_of(found->key), *record};
}

std::optional<lock_rules::operation::placed_ticket> lock_rules::operation::find_live_ticket(
    contender_number number, const holder_id& id) {
  if (number == 0 || lock_.waiters == 0) return std::nullopt;
  const auto value = records().get(record_key::ticket(name_, number));
  if (!value) return std::nullopt;
  auto found = ticket_at(table::entry{record_key::ticket(name_, number), *value});
  if (!found || found->record.id != id) return std::nullopt;
  if (time_of(found->record.lapses) > now()) return found;
  const auto next = ticket_after(number);
  drop_ticket(number);
  tell_to_look(next);
  return std::nullopt;
}

contender_number lock_rules::operation::enqueue(const ticket_record& added,
                                                std::string_view value) {
  const contender_number number = ++rules_.change_meta().last_number;
  rules_.put(record_key::ticket(name_, number), {bytes_of(added), value});
  ++lock_.waiters;
  dirty_ = true;
  return number;
}

void lock_rules::operation::save_ticket(const placed_ticket& one) {
  const record_key key = record_key::ticket(name_, one.number);
  const auto before = records().get(key);
  const std::string value(before && before->size() > sizeof(ticket_record)
                              ? before->substr(sizeof(ticket_record))
                              : "");
  rules_.put(key, {bytes_of(one.record), value});
}

void lock_rules::operation::drop_ticket(contender_number number) {
  rules_.remove(record_key::ticket(name_, number));
  if (lock_.waiters > 0) --lock_.waiters;
  dirty_ = true;
}

void lock_rules::operation::settle() {
  if (lock_.holders > 0 && time_of(lock_.may_lapse_at) <= now()) {
    lock_.may_lapse_at = never_lapses;
    const std::uint32_t counted = lock_.holders;
    std::uint32_t seen = 0;
    for_each_holder([&](const holding_record& one) {
      ++seen;
      if (time_of(one.expiry) <= now()) {
        drop_holder(one);
      } else {
        lock_.may_lapse_at = std::min(lock_.may_lapse_at, one.expiry);
      }
      return true;
    });
    // A holder that is counted and not there would never lapse.
    if (seen != counted) records().fail(damaged("a lock does not have the holders it counts"));
    dirty_ = true;
  }
  serve();
}

void lock_rules::operation::clear_dead(client_number asker, std::size_t limit) {
  std::size_t looked_at = 0;
  for_each_holder([&](const holding_record& one) {
    const bool cleared = one.tombstone == 0 && one.client != asker && dead(one.client);
    if (cleared && !planted(defect::dead_holder_not_removed)) drop_holder(one);
    return ++looked_at < limit;
  });
  serve(true);
}

void lock_rules::operation::remind() {
  for_each_holder([&](const holding_record& one) {
    if (one.provisional != 0 && time_of(one.since) < now()) {
      tell(one.client, notice_kind::look, one.id);
    }
    return true;
  });
  // The head of a mutex's queue watches its one holder in any case.
  if (!one_holder_at_most(lock_.kind) && lock_.waiters > 0) tell_to_look(first_ticket());
}

void lock_rules::operation::serve(bool looking_for_dead) {
  bool skipped = false;
  bool handed_over = false;
  while (lock_.waiters > 0 && open_to_somebody()) {
    const auto head = first_ticket();
    if (!head) {
      lock_.waiters = 0;
      dirty_ = true;
      break;
    }
    const bool lapsed = time_of(head->record.lapses) <= now();
    const bool skip = lapsed || (looking_for_dead && dead(head->record.client));
    if (!skip && !compatible(head->record.mode)) break;
    if (!rules_.serves_one_more()) {
      unserved_ = true;
      break;
    }
    if (skip) {
      drop_ticket(head->number);
      skipped = true;
    } else {
      hand_over(*head);
      handed_over = true;
    }
  }
  // At a mutex the new head watches the new holder already: it stood right behind it.
  const bool other_picture = skipped || (handed_over && !one_holder_at_most(lock_.kind));
  if (other_picture && lock_.waiters > 0) tell_to_look(first_ticket());
}

void lock_rules::operation::hand_over(const placed_ticket& next) {
  const ticket_record& ticket = next.record;
  std::string value;
  if (lock_.kind == lock_kind::election) {
    const auto stored_ticket = records().get(record_key::ticket(name_, next.number));
    if (stored_ticket) value = stored_ticket->substr(sizeof(ticket_record));
  }
  drop_ticket(next.number);

  token_block tokens;
  if (planted(defect::token_not_raised)) {
    const std::uint64_t last = std::max<std::uint64_t>(rules_.meta().last_token, 1);
    tokens = {fencing_token(last), fencing_token(last)};
  } else {
    tokens = rules_.draw(ticket.token_count);
  }
  holding_record taken;
  taken.id = ticket.id;
  taken.number = next.number;
  taken.client = ticket.client;
  taken.first_token = tokens.first.value();
  taken.last_token = tokens.last.value();
  taken.expiry = stored(now()) + ticket.claim_window;
  taken.since = stored(now());
  taken.local_waiters = ticket.local_waiters;
  taken.mode = ticket.mode;
  taken.provisional = 1;
  add_holder(taken, value);
  rules_.world_.notices.push_back(
      {ticket.client,
       notice_kind::granted,
       ticket.id,
       granted{tokens, duration{ticket.claim_window}, true, lock_.permits},
       {}});
}

time_point lock_rules::operation::entry_by_lapse(lock_mode mode) {
  auto earliest = time_point::max();
  auto latest = now();
  for_each_holder([&](const holding_record& one) {
    const time_point expiry = time_of(one.expiry);
    earliest = std::min(earliest, expiry);
    if (mode == lock_mode::exclusive || barring(one)) latest = std::max(latest, expiry);
    return true;
  });
  if (lock_.holders == 0) return now();
  return lock_.kind == lock_kind::semaphore ? earliest : latest;
}

std::optional<waiting> lock_rules::operation::wait(contender_number number,
                                                   const ticket_record& mine,
                                                   duration ticket_length, bool looked,
                                                   std::vector<client_number>& in_the_way) {
  const duration longest = std::max(ticket_length / 3, shortest_ask_again);
  const auto answer = [&](duration ask_again) {
    return waiting{ask_again, lock_.permits, fencing_token(rules_.meta().last_token)};
  };
  while (const auto previous = ticket_before(number)) {
    const ticket_record& one = previous->record;
    const bool lapsed = time_of(one.lapses) <= now();
    if (lapsed || (one.client != mine.client && dead(one.client))) {
      if (!rules_.serves_one_more()) {
        in_the_way.push_back(one.client);
        return answer(shortest_ask_again);
      }
      drop_ticket(previous->number);
      looked = false;
      continue;
    }
    if (one.client != mine.client) in_the_way.push_back(one.client);
    return answer(longest);
  }

  if (!looked) {
    clear_dead(mine.client);
    if (find_holder(number, mine.id)) return std::nullopt;
  }
  for_each_holder([&](const holding_record& one) {
    if (one.tombstone == 0 && one.client != mine.client) in_the_way.push_back(one.client);
    return in_the_way.size() < most_holders_watched;
  });
  const duration until_free = entry_by_lapse(mine.mode) - now();
  return answer(std::clamp(until_free, shortest_ask_again, longest));
}

void lock_rules::operation::tell_watchers() {
  if (rules_.meta().watches == 0) return;
  const record_key first = record_key::watch(name_);
  auto at = records().at_or_after(first);
  while (at && at->key.starts_with(first.range())) {
    const client_number client = number_of(at->key);
    rules_.world_.notices.push_back(
        {client, notice_kind::changed, {}, std::nullopt, std::string(name_)});
    at = records().at_or_after(record_key::watch(name_, client + 1));
  }
}

}  // namespace sallyport::backends::local
