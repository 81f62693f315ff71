#include "backends/memory/lock_table.hpp"

#include "base/check.hpp"
#include "base/planted.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <chrono>
#include <new>
#include <string>
#include <utility>

namespace sallyport::backends::memory {

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
using backend_api::waiting;
using base::defect;
using base::planted;
using std::chrono::milliseconds;

namespace {

constexpr duration shortest_ask_again = milliseconds{1};

/// What the lock's kind makes of the mode that was asked for.
lock_mode effective_mode(lock_kind kind, lock_mode asked) noexcept {
  return kind == lock_kind::mutex || kind == lock_kind::election ? lock_mode::exclusive : asked;
}

/// Whether one more holder of this mode may enter. Tombstones keep their holder's place; at a
/// shared_mutex they also keep readers out, so that "nobody enters before the old deadline" needs
/// no exception.
bool compatible(const lock_entry& entry, lock_mode mode) noexcept {
  switch (entry.kind) {
    case lock_kind::mutex:
    case lock_kind::election:
      return entry.holders.empty();
    case lock_kind::shared_mutex:
      return mode == lock_mode::shared ? !entry.holders.bars_readers() : entry.holders.empty();
    case lock_kind::semaphore:
      return entry.holders.size() < entry.permits;
  }
  SALLYPORT_CHECK(false);
}

/// When a waiter of this mode could enter if nobody renewed and nobody released.
time_point entry_by_lapse(const lock_entry& entry, lock_mode mode, time_point now) {
  if (entry.holders.empty()) return now;
  auto earliest = time_point::max();
  auto latest = now;
  entry.holders.for_each([&](const holding& each) {
    earliest = std::min(earliest, each.expiry);
    const bool in_the_way =
        mode == lock_mode::exclusive || each.tombstone || each.mode == lock_mode::exclusive;
    if (in_the_way) latest = std::max(latest, each.expiry);
  });
  return entry.kind == lock_kind::semaphore ? earliest : latest;
}

/// The head is told when the holders in its way lapse, since then its own asking lets it in; the
/// others hear of their turn by a notice, and ask only to stay alive and in case it was lost.
waiting wait_answer(const lock_entry& entry, const ticket& mine, duration ticket_length,
                    fencing_token newest, time_point now) {
  const duration longest = std::max(ticket_length / 3, shortest_ask_again);
  const bool first = &entry.queue->front() == &mine;
  if (!first) return {longest, entry.permits, newest};
  const duration until_free = entry_by_lapse(entry, mine.mode, now) - now;
  return {std::clamp(until_free, shortest_ask_again, longest), entry.permits, newest};
}

const std::string& by_text(const lock_name* name) noexcept { return name->text(); }

bool contains(const token_block& block, fencing_token token) noexcept {
  return block.first <= token && token <= block.last;
}

}  // namespace

/// One operation on one name, from its look-up to its end: then an entry without content leaves the
/// table, and watchers are told once, however much changed.
class lock_table::operation {
 public:
  operation(lock_table& table, const lock_name& name, time_point now, std::vector<notice>& notices)
      : table_(table),
        name_(name),
        now_(now),
        notices_(notices),
        position_(table.names_.find(name)),
        entry_(position_ == table.names_.end() ? nullptr : &position_->second) {}
  operation(const operation&) = delete;
  operation& operator=(const operation&) = delete;
  ~operation() {
    if (changed_) tell_watchers();
    // An operation for which there was not enough memory may have made one.
    if (entry_ != nullptr) entry_->drop_empty_queue();
    if (entry_ != nullptr && entry_->vacant()) table_.drop_entry(position_);
  }

  /// Null: the name is not in the table.
  [[nodiscard]] lock_entry* entry() noexcept { return entry_; }
  [[nodiscard]] bool in_use() const noexcept { return entry_ != nullptr && !entry_->vacant(); }

  [[nodiscard]] holding* find_holder(const holder_id& id) {
    return entry_ == nullptr ? nullptr : entry_->holders.find(id);
  }
  /// The ticket of a live waiter. One that lapsed in the middle of the queue is removed here.
  [[nodiscard]] ticket* find_live_ticket(const holder_id& id) {
    if (entry_ == nullptr || !entry_->queue) return nullptr;
    ticket* const found = entry_->queue->find(id);
    if (found == nullptr || lives(*found)) return found;
    leave_queue(id);
    return nullptr;
  }

  void settle() {
    if (entry_ == nullptr) return;
    if (entry_->holders.remove_lapsed(now_, [&](const holding& each) { remember(each); })) {
      changed_ = true;
    }
    serve();
  }

  /// REQUIRES: not in use.
  lock_entry& begin_use(lock_kind kind, std::uint32_t permits) {
    if (entry_ == nullptr) {
      table_.drop_dead_names(now_, notices_);
      position_ = table_.make_entry(name_);
      entry_ = &position_->second;
    }
    entry_->kind = kind;
    entry_->permits = kind == lock_kind::semaphore ? std::max(permits, 1U) : 1U;
    return *entry_;
  }

  void install(holding&& added) {
    entry_->holders.add(std::move(added));
    changed_ = true;
  }
  void remove(const holding& removed) {
    entry_->holders.remove(removed);
    changed_ = true;
    serve();
  }
  const ticket& enqueue(ticket&& added) {
    if (!entry_->queue) entry_->queue = std::make_unique<wait_queue>();
    if (!planted(defect::dead_waiter_not_skipped)) entry_->queue->make_room(now_);
    return entry_->queue->push_back(std::move(added));
  }
  void leave_queue(const holder_id& id) {
    entry_->queue->remove(id);
    entry_->drop_empty_queue();
  }
  void serve();
  void mark_changed() noexcept { changed_ = true; }
  void tell_lost(const holding& broken) {
    notices_.push_back({broken.client, notice_kind::lost, broken.id, std::nullopt, name_});
  }

 private:
  [[nodiscard]] bool lives(const ticket& one) const noexcept {
    return one.lapses > now_ || planted(defect::dead_waiter_not_skipped);
  }
  void hand_over(ticket&& next);
  void remember(const holding& lapsed) {
    if (planted(defect::renew_by_upsert) && !lapsed.tombstone) {
      table_.lapsed_.insert_or_assign(lapsed.id, lapsed);
    }
  }
  void tell_watchers() noexcept {
    const auto watched = table_.watchers_.find(name_);
    if (watched == table_.watchers_.end()) return;
    try {
      for (const client_number client : watched->second) {
        notices_.push_back({client, notice_kind::changed, {}, std::nullopt, name_});
      }
    } catch (const std::bad_alloc&) {
      return;  // a hint, no more: watchers also read by themselves
    }
  }

  lock_table& table_;
  const lock_name& name_;
  const time_point now_;
  std::vector<notice>& notices_;
  name_map::iterator position_;
  lock_entry* entry_;
  bool changed_ = false;
};

void lock_table::operation::serve() {
  if (!entry_->queue) return;
  wait_queue& queue = *entry_->queue;
  while (!queue.empty()) {
    ticket& head = queue.front();
    if (head.lapses <= now_) {
      // Planted: the dead head is neither removed nor passed over.
      if (planted(defect::dead_waiter_not_skipped)) break;
      queue.pop_front();
      continue;
    }
    if (!compatible(*entry_, head.mode)) break;
    const holder_id id = head.id;
    hand_over(std::move(head));
    queue.remove(id);
  }
  entry_->drop_empty_queue();
}

void lock_table::operation::hand_over(ticket&& next) {
  token_block tokens;
  if (planted(defect::token_not_raised)) {
    const std::uint64_t last = std::max<std::uint64_t>(table_.last_token_, 1);
    const std::uint64_t first = last > next.token_count ? last - next.token_count + 1 : 1;
    tokens = {fencing_token(first), fencing_token(last)};
  } else {
    tokens = table_.draw(next.token_count);
  }
  const granted grant{tokens, next.claim_window, true, entry_->permits};
  notices_.push_back({next.client, notice_kind::granted, next.id, grant, name_});

  holding taken{static_cast<contender&&>(next)};
  taken.since = now_;
  taken.provisional = true;
  taken.expiry = now_ + grant.remaining;
  taken.tokens = tokens;
  install(std::move(taken));
}

base::result<acquire_answer> lock_table::acquire(const acquire_request& request,
                                                 const requester& from, time_point now,
                                                 std::vector<notice>& notices) {
  operation op(*this, request.name, now, notices);
  op.settle();

  if (op.in_use() && op.entry()->kind != request.kind) {
    return base::fail(errc::wrong_kind,
                      "the name is in use as a " + std::string(to_string(op.entry()->kind)));
  }
  if (holding* const mine = op.find_holder(request.holder)) {
    mine->local_waiters = request.local_waiters;
    const bool forgetful = planted(defect::full_lease_on_already_yours);
    return granted{mine->tokens, forgetful ? request.lease_length : mine->expiry - now,
                   mine->provisional, op.entry()->permits};
  }
  if (ticket* const mine = op.find_live_ticket(request.holder)) {
    mine->lapses = now + request.ticket_length;
    mine->claim_window = request.claim_window;
    mine->token_count = std::max(request.token_count, 1U);
    mine->local_waiters = request.local_waiters;
    return wait_answer(*op.entry(), *mine, request.ticket_length, last_token(), now);
  }

  contender asker;
  asker.id = request.holder;
  asker.client = from.client;
  asker.owner = from.owner;
  asker.set_value(request.value);
  asker.since = now;
  asker.local_waiters = request.local_waiters;
  asker.mode = effective_mode(request.kind, request.mode);

  if (!op.in_use()) op.begin_use(request.kind, request.permits);
  lock_entry& entry = *op.entry();
  if (!entry.somebody_waits() && compatible(entry, asker.mode)) {
    holding taken{std::move(asker)};
    taken.expiry = now + request.lease_length;
    taken.tokens = draw(std::max(request.token_count, 1U));
    const granted answer{taken.tokens, request.lease_length, false, entry.permits};
    op.install(std::move(taken));
    return answer;
  }
  if (!request.may_wait) return held{};

  ticket place{std::move(asker)};
  place.token_count = std::max(request.token_count, 1U);
  place.lapses = now + request.ticket_length;
  place.claim_window = request.claim_window;
  return wait_answer(entry, op.enqueue(std::move(place)), request.ticket_length, last_token(), now);
}

renew_answer lock_table::renew(const renew_request& request, time_point now,
                               std::vector<notice>& notices) {
  operation op(*this, request.name, now, notices);
  op.settle();

  if (planted(defect::renew_by_upsert) && !op.in_use()) {
    if (auto lapsed = lapsed_.extract(request.holder)) {
      op.begin_use(request.kind, 1);
      op.install(std::move(lapsed.mapped()));
    }
  }
  if (holding* const mine = op.find_holder(request.holder)) {
    op.entry()->holders.extend(*mine, now + request.lease_length);
    mine->provisional = false;
    mine->local_waiters = request.local_waiters;
    if (request.token_count > 0) {
      mine->tokens = draw(request.token_count);
      op.mark_changed();
    }
    return renewed{mine->tokens, request.lease_length};
  }
  if (ticket* const mine = op.find_live_ticket(request.holder)) {
    mine->local_waiters = request.local_waiters;
    return wait_answer(*op.entry(), *mine, mine->lapses - now, last_token(), now);
  }
  return gone{};
}

leave_answer lock_table::release(const leave_request& request, time_point now,
                                 std::vector<notice>& notices) {
  operation op(*this, request.name, now, notices);
  op.settle();

  holding* mine = op.find_holder(request.holder);
  if (planted(defect::release_without_compare) && mine == nullptr && op.in_use()) {
    mine = op.entry()->holders.find_if(
        [](const holding& each) { return !each.tombstone && each.mode == lock_mode::exclusive; });
  }
  if (mine == nullptr) return leave_answer::not_there;
  op.remove(*mine);
  return leave_answer::left;
}

leave_answer lock_table::withdraw(const leave_request& request, time_point now,
                                  std::vector<notice>& notices) {
  operation op(*this, request.name, now, notices);

  // Leave the queue before it is served: no grant, token or notice for one who no longer wants it.
  const bool queued = op.find_live_ticket(request.holder) != nullptr;
  if (queued) op.leave_queue(request.holder);
  op.settle();
  if (queued) return leave_answer::left;

  holding* const mine = op.find_holder(request.holder);
  if (mine == nullptr) return leave_answer::not_there;
  op.remove(*mine);
  return leave_answer::left;
}

base::result<renew_answer> lock_table::downgrade(const renew_request& request, time_point now,
                                                 std::vector<notice>& notices) {
  if (request.kind != lock_kind::shared_mutex) {
    return base::fail(errc::not_supported, "only a shared_mutex can be downgraded");
  }
  operation op(*this, request.name, now, notices);
  op.settle();

  holding* const mine = op.find_holder(request.holder);
  if (mine == nullptr || op.entry()->kind != lock_kind::shared_mutex) return gone{};
  op.entry()->holders.extend(*mine, now + request.lease_length);
  mine->provisional = false;
  mine->local_waiters = request.local_waiters;
  const renewed answer{mine->tokens, request.lease_length};
  if (mine->mode == lock_mode::exclusive) {
    op.entry()->holders.make_reader(*mine);
    op.mark_changed();
    op.serve();
  }
  return answer;
}

bool lock_table::set_value(const renew_request& holder, std::string_view value, time_point now,
                           std::vector<notice>& notices) {
  operation op(*this, holder.name, now, notices);
  op.settle();

  holding* const mine = op.find_holder(holder.holder);
  if (mine == nullptr) return false;
  if (mine->value() != value) {
    mine->set_value(value);
    op.mark_changed();
  }
  return true;
}

base::result<std::monostate> lock_table::break_lock(const lock_name& name, fencing_token observed,
                                                    break_mode mode, time_point now,
                                                    std::vector<notice>& notices) {
  operation op(*this, name, now, notices);
  op.settle();

  if (!op.in_use() || op.entry()->holders.empty()) {
    return base::fail(errc::no_such_lock, "nobody holds it");
  }
  bool held_by_somebody = false;
  holding* const broken = op.entry()->holders.find_if([&](const holding& each) {
    if (!each.tombstone) held_by_somebody = true;
    const bool breakable = !each.tombstone || mode == break_mode::at_once;
    return breakable && contains(each.tokens, observed);
  });
  if (broken == nullptr) {
    if (!held_by_somebody) return base::fail(errc::no_such_lock, "its grant was broken already");
    return base::fail(errc::token_mismatch, "it is held under another token");
  }

  if (!broken->tombstone) op.tell_lost(*broken);
  switch (mode) {
    case break_mode::safe:
      op.entry()->holders.make_tombstone(*broken);
      op.mark_changed();
      break;
    case break_mode::at_once:
      op.remove(*broken);
      break;
  }
  return std::monostate{};
}

std::optional<lock_info> lock_table::who(const lock_name& name, time_point now,
                                         std::vector<notice>& notices) {
  operation op(*this, name, now, notices);
  op.settle();
  if (!op.in_use()) return std::nullopt;
  return describe(name, *op.entry(), now);
}

std::vector<lock_info> lock_table::list(std::string_view prefix, std::string_view after,
                                        std::size_t limit, time_point now,
                                        std::vector<notice>& notices) {
  std::vector<lock_info> page;
  std::vector<const lock_name*> names = matching_names(prefix, after);
  auto next = names.begin();
  auto sorted_until = next;
  while (page.size() < limit && next != names.end()) {
    // Sort no more than the page needs; names that turn out to have lapsed make it need more.
    if (next == sorted_until) {
      const auto rest = static_cast<std::size_t>(names.end() - next);
      sorted_until += static_cast<std::ptrdiff_t>(std::min(limit - page.size(), rest));
      std::ranges::partial_sort(next, sorted_until, names.end(), {}, by_text);
    }
    const lock_name& name = **next++;
    operation op(*this, name, now, notices);
    op.settle();
    if (op.in_use()) page.push_back(describe(name, *op.entry(), now));
  }
  return page;
}

void lock_table::watch(client_number client, const lock_name& name, bool on) {
  if (on) {
    auto& clients = watchers_[name];
    if (std::ranges::find(clients, client) == clients.end()) clients.push_back(client);
    return;
  }
  const auto watched = watchers_.find(name);
  if (watched == watchers_.end()) return;
  std::erase(watched->second, client);
  if (watched->second.empty()) watchers_.erase(watched);
}

void lock_table::forget(client_number client) {
  for (auto& [name, clients] : watchers_) std::erase(clients, client);
  std::erase_if(watchers_, [](const auto& watched) { return watched.second.empty(); });
}

void lock_table::sweep(time_point now, std::vector<notice>& notices) {
  settle_all(matching_names({}, {}), now, notices);
}

void lock_table::settle_all(std::vector<const lock_name*> names, time_point now,
                            std::vector<notice>& notices) {
  // Notices must not come in the order of a hash table.
  std::ranges::sort(names, {}, by_text);
  for (const lock_name* const name : names) {
    operation op(*this, *name, now, notices);
    op.settle();
  }
}

std::optional<time_point> lock_table::next_expiry(const lock_name& name) const {
  const auto found = names_.find(name);
  if (found == names_.end() || found->second.holders.empty()) return std::nullopt;
  auto earliest = time_point::max();
  found->second.holders.for_each(
      [&](const holding& each) { earliest = std::min(earliest, each.expiry); });
  return earliest;
}

std::size_t lock_table::ticket_count(const lock_name& name) const {
  const auto found = names_.find(name);
  return found == names_.end() || !found->second.queue ? 0 : found->second.queue->size();
}

lock_table::name_map::iterator lock_table::make_entry(const lock_name& name) {
  if (spare_.empty()) return names_.try_emplace(name).first;
  spare_.key() = name;
  return names_.insert(std::move(spare_)).position;
}

void lock_table::drop_entry(name_map::iterator position) { spare_ = names_.extract(position); }

void lock_table::drop_dead_names(time_point now, std::vector<notice>& notices) {
  if (names_.size() < sweep_at_) return;
  std::vector<const lock_name*> dead_names;
  for (const auto& [name, entry] : names_) {
    if (dead(entry, now)) dead_names.push_back(&name);
  }
  settle_all(std::move(dead_names), now, notices);
  sweep_at_ = std::max(smallest_sweep, 2 * names_.size());
}

token_block lock_table::draw(std::uint32_t count) noexcept {
  const fencing_token first(last_token_ + 1);
  last_token_ += count;
  return {first, fencing_token(last_token_)};
}

std::vector<const lock_name*> lock_table::matching_names(std::string_view prefix,
                                                         std::string_view after) const {
  std::vector<const lock_name*> found;
  for (const auto& [name, entry] : names_) {
    const std::string_view text = name.text();
    if (text.starts_with(prefix) && text > after) found.push_back(&name);
  }
  return found;
}

void lock_table::audit() const {
  for (const auto& [name, entry] : names_) {
    SALLYPORT_CHECK(!entry.vacant());
    entry.holders.audit();
    std::size_t holders = 0;
    std::size_t exclusive = 0;
    entry.holders.for_each([&](const holding& each) {
      ++holders;
      if (each.mode == lock_mode::exclusive) ++exclusive;
      SALLYPORT_CHECK(each.tokens.first.value() > 0 && each.tokens.first <= each.tokens.last);
      SALLYPORT_CHECK(each.tokens.last <= last_token());
      SALLYPORT_CHECK(!each.tombstone || each.id == holder_id{});
    });
    switch (entry.kind) {
      case lock_kind::mutex:
      case lock_kind::election:
        SALLYPORT_CHECK(holders <= 1);
        break;
      case lock_kind::shared_mutex:
        SALLYPORT_CHECK(exclusive == 0 || holders == 1);
        break;
      case lock_kind::semaphore:
        SALLYPORT_CHECK(holders <= entry.permits);
        break;
    }
    if (!entry.queue) continue;
    entry.queue->audit();
    SALLYPORT_CHECK(!entry.queue->empty());
    SALLYPORT_CHECK(!compatible(entry, entry.queue->front().mode));
    for (const ticket& waiter : entry.queue->in_order()) {
      entry.holders.for_each([&](const holding& each) { SALLYPORT_CHECK(each.id != waiter.id); });
    }
  }
}

}  // namespace sallyport::backends::memory
