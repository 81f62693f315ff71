#include "backends/local/lock_rules.hpp"

#include "base/check.hpp"
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
using backend_api::waiting;
using base::defect;
using base::planted;
using std::chrono::milliseconds;

namespace {

constexpr duration shortest_ask_again = milliseconds{1};
constexpr std::size_t every_holder = std::numeric_limits<std::size_t>::max();
constexpr std::int64_t never = time_point::max().time_since_epoch().count();

base::failure damaged(std::string_view what) {
  return {make_error_code(errc::store_refused),
          "the store is damaged: " + std::string(what) +
              "; stop all programs that use it, and the next one to start sets it aside"};
}

lock_mode effective_mode(lock_kind kind, lock_mode asked) noexcept {
  return kind == lock_kind::mutex || kind == lock_kind::election ? lock_mode::exclusive : asked;
}

/// Of such a lock there is at most one holder, which stands in the lock's own record.
bool one_holder_at_most(lock_kind kind) noexcept {
  return kind == lock_kind::mutex || kind == lock_kind::election;
}

bool sound(const lock_record& one) noexcept {
  return one.kind <= lock_kind::election && one.barring <= one.holders;
}
bool sound(const holding_record& one) noexcept { return one.mode <= lock_mode::shared; }
bool sound(const ticket_record& one) noexcept { return one.mode <= lock_mode::shared; }

token_block tokens_of(const holding_record& one) noexcept {
  return {fencing_token(one.first_token), fencing_token(one.last_token)};
}

milliseconds shown(duration span) {
  return std::max(std::chrono::duration_cast<milliseconds>(span), milliseconds{0});
}

}  // namespace

/// One operation on one name, from its look-up to its end: then what changed is written back, a
/// name without content leaves the table, and watchers are told once, however much changed.
class lock_rules::operation {
 public:
  struct placed_ticket {
    contender_number number;
    ticket_record record;
  };

  operation(lock_rules& rules, std::string_view name)
      : rules_(rules), name_(name), key_(record_key::lock(name)) {
    const auto value = records().get(key_);
    if (!value) return;
    in_table_ = true;
    read(*value);
  }
  operation(const operation&) = delete;
  operation& operator=(const operation&) = delete;
  ~operation() {
    if (changed_) tell_watchers();
    write_back();
  }

  [[nodiscard]] lock_record& lock() noexcept { return lock_; }
  [[nodiscard]] bool in_use() const noexcept { return lock_.holders > 0 || lock_.waiters > 0; }
  [[nodiscard]] time_point now() const noexcept { return rules_.world_.now; }
  [[nodiscard]] bool compatible(lock_mode mode) const noexcept {
    switch (lock_.kind) {
      case lock_kind::mutex:
      case lock_kind::election:
        return lock_.holders == 0;
      case lock_kind::shared_mutex:
        return mode == lock_mode::shared ? lock_.barring == 0 : lock_.holders == 0;
      case lock_kind::semaphore:
        return lock_.holders < lock_.permits;
    }
    SALLYPORT_CHECK(false);
  }
  /// Somebody stands in the way of one more contender of this mode.
  [[nodiscard]] bool barred(lock_mode mode) const noexcept {
    return lock_.waiters > 0 || !compatible(mode);
  }

  void begin_use(lock_kind kind, std::uint32_t permits) {
    lock_ = {};
    lock_.kind = kind;
    lock_.permits = kind == lock_kind::semaphore ? std::max(permits, 1U) : 1U;
    lock_.may_lapse_at = never;
    dirty_ = true;
  }

  // Holders.
  std::optional<holding_record> find_holder(contender_number number, const holder_id& id);
  void add_holder(const holding_record& added, std::string_view value);
  void save_holder(const holding_record& one);
  /// Without serving the queue.
  void drop_holder(const holding_record& one);
  template <class Visit>  // bool visit(const holding_record&): go on?
  void for_each_holder(Visit visit);
  [[nodiscard]] std::string& sole_value() noexcept { return sole_value_; }

  // The queue.
  std::optional<placed_ticket> find_live_ticket(contender_number number, const holder_id& id);
  contender_number enqueue(const ticket_record& added, std::string_view value);
  void save_ticket(const placed_ticket& one);
  void drop_ticket(contender_number number);
  std::optional<placed_ticket> first_ticket() {
    return ticket_at(records().at_or_after(record_key::ticket(name_)));
  }
  std::optional<placed_ticket> ticket_after(contender_number number) {
    return ticket_at(records().at_or_after(record_key::ticket(name_, number + 1)));
  }
  std::optional<placed_ticket> ticket_before(contender_number number) {
    return ticket_at(records().before(record_key::ticket(name_, number)));
  }

  void settle();
  /// Removes dead holders, from up to `limit`, and serves those in the queue who live.
  void clear_dead(client_number asker, std::size_t limit = most_holders_watched);
  void serve(bool looking_for_dead = false);
  /// Tells those once more who may not have been told, because who should have died before it could.
  void remind();
  void mark_changed() noexcept { changed_ = true; }
  /// The counts of lock() were changed from outside.
  void rewrite() noexcept { dirty_ = true; }
  void tell(client_number client, notice_kind kind, const holder_id& id) {
    rules_.world_.notices.push_back({client, kind, id, std::nullopt, {}});
  }
  void tell_to_look(const std::optional<placed_ticket>& one) {
    if (planted(defect::look_not_sent)) return;
    if (one) tell(one->record.client, notice_kind::look, one->record.id);
  }

  /// What a waiter is answered, after those who died before it are gone; nothing when that made it
  /// a holder. `looked`: dead holders were cleared just now.
  std::optional<waiting> wait(contender_number number, const ticket_record& mine,
                              duration ticket_length, bool looked,
                              std::vector<client_number>& in_the_way);

 private:
  table& records() noexcept { return rules_.world_.records; }
  bool dead(client_number client) { return rules_.world_.kernel.dead(client, records()); }
  void read(std::string_view value);
  void write_back();
  void hand_over(const placed_ticket& next);
  void tell_watchers();
  time_point entry_by_lapse(lock_mode mode);
  std::optional<placed_ticket> ticket_at(const std::optional<table::entry>& found);
  /// Whether anybody at all could enter now.
  [[nodiscard]] bool open_to_somebody() const noexcept {
    return compatible(lock_.kind == lock_kind::shared_mutex ? lock_mode::shared
                                                            : lock_mode::exclusive);
  }
  static bool barring(const holding_record& one) noexcept {
    return one.tombstone != 0 || one.mode == lock_mode::exclusive;
  }

  lock_rules& rules_;
  const std::string_view name_;
  const record_key key_;
  lock_record lock_;
  std::optional<holding_record> sole_;  // the holder of a mutex or election
  std::string sole_value_;
  bool in_table_ = false;
  bool dirty_ = false;
  bool changed_ = false;
};

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

template <class Visit>
void lock_rules::operation::for_each_holder(Visit visit) {
  if (one_holder_at_most(lock_.kind)) {
    if (sole_) visit(holding_record{*sole_});
    return;
  }
  const record_key first = record_key::holder(name_);
  auto at = records().at_or_after(first);
  while (at && at->key.starts_with(first.range())) {
    const auto one = read_record<holding_record>(at->value);
    if (!one || !sound(*one)) {
      records().fail(damaged("a holder's record"));
      return;
    }
    const contender_number number = number_of(at->key);
    if (!visit(*one)) return;
    at = records().at_or_after(record_key::holder(name_, number + 1));
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
    lock_.may_lapse_at = never;
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
    if (lapsed || (looking_for_dead && dead(head->record.client))) {
      drop_ticket(head->number);
      skipped = true;
      continue;
    }
    if (!compatible(head->record.mode)) break;
    hand_over(*head);
    handed_over = true;
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

client_number lock_rules::add_client(const client_record& who, std::string_view label) {
  const client_number number = ++change_meta().last_number;
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

std::vector<client_number> lock_rules::dead_clients(std::uint64_t random, std::size_t limit) {
  std::vector<client_number> found;
  client_number next = random % (meta().last_number + 1);
  bool from_the_start = false;
  for (std::size_t looked = 0; looked < limit; ++looked) {
    auto at = world_.records.at_or_after(record_key::client(next));
    if ((!at || !at->key.starts_with('C')) && !std::exchange(from_the_start, true)) {
      at = world_.records.at_or_after(record_key::client(0));
    }
    if (!at || !at->key.starts_with('C')) break;
    const client_number one = number_of(at->key);
    if (world_.kernel.dead(one, world_.records)) found.push_back(one);
    next = one + 1;
  }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
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
  if (!op.barred(mode)) {
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
  if (!request.may_wait) return placed<acquire_answer>{held{}};

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

std::string lock_rules::sweep(std::string_view after, std::size_t limit) {
  std::string next = "L" + std::string(after) + '\0';
  std::string name;
  for (std::size_t done = 0; done < limit; ++done) {
    const auto at = world_.records.at_or_after(next);
    if (!at || !at->key.starts_with('L')) return {};
    name = at->key.substr(1);
    next = "L" + name + '\0';
    operation op(*this, name);
    op.settle();
    for (auto each = op.first_ticket(); each; each = op.ticket_after(each->number)) {
      const bool lapsed = time_of(each->record.lapses) <= op.now();
      if (!lapsed && !world_.kernel.dead(each->record.client, world_.records)) continue;
      op.drop_ticket(each->number);
      op.tell_to_look(op.ticket_after(each->number));
    }
    op.remind();
    op.clear_dead(0, every_holder);
  }
  return name;
}

}  // namespace sallyport::backends::local
