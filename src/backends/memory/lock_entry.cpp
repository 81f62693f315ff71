#include "backends/memory/lock_entry.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

namespace sallyport::backends::memory {

using std::chrono::milliseconds;

namespace {

milliseconds shown(duration span) noexcept {
  return std::max(milliseconds{0}, std::chrono::floor<milliseconds>(span));
}

template <class Info>
void describe_contender(Info& info, const contender& one) {
  info.mode = one.mode;
  info.local_waiters = one.local_waiters;
  if (!one.owner) return;
  info.host = one.owner->host;
  info.pid = one.owner->pid;
  info.label = one.owner->label;
}

}  // namespace

std::size_t holder_set::size() const noexcept {
  if (many_) return many_->in_order.size();
  return sole_ ? 1 : 0;
}

bool holder_set::bars_readers() const noexcept {
  if (many_) return many_->barring > 0;
  return sole_ && barring(*sole_);
}

holding* holder_set::find(const holder_id& id) noexcept {
  if (sole_) return !sole_->tombstone && sole_->id == id ? &*sole_ : nullptr;
  if (!many_) return nullptr;
  const auto found = many_->by_id.find(id);
  return found == many_->by_id.end() ? nullptr : &*found->second;
}

void holder_set::add(holding&& added) {
  if (empty()) {
    sole_ = std::move(added);
    return;
  }
  if (!many_) {
    auto fresh = std::make_unique<crowd>();
    append(*fresh, holding{*sole_});
    many_ = std::move(fresh);
    sole_.reset();
  }
  append(*many_, std::move(added));
}

void holder_set::append(crowd& all, holding&& added) {
  const auto position = all.in_order.insert(all.in_order.end(), std::move(added));
  try {
    if (!position->tombstone) all.by_id.emplace(position->id, position);
  } catch (const std::bad_alloc&) {
    all.in_order.erase(position);
    throw;
  }
  all.may_lapse_at = std::min(all.may_lapse_at, position->expiry);
  if (barring(*position)) ++all.barring;
}

std::list<holding>::iterator holder_set::erase(std::list<holding>::iterator position) {
  if (barring(*position)) --many_->barring;
  if (!position->tombstone) many_->by_id.erase(position->id);
  return many_->in_order.erase(position);
}

void holder_set::remove(const holding& removed) {
  if (sole_) {
    sole_.reset();
    return;
  }
  auto position = many_->in_order.begin();
  if (removed.tombstone) {
    position = std::find_if(many_->in_order.begin(), many_->in_order.end(),
                            [&](const holding& each) { return &each == &removed; });
  } else {
    position = many_->by_id.find(removed.id)->second;
  }
  erase(position);
  if (many_->in_order.empty()) many_.reset();
}

void holder_set::extend(holding& extended, time_point expiry) noexcept {
  extended.expiry = expiry;
  // A renewal may also shorten: the bound must not come after it.
  if (many_) many_->may_lapse_at = std::min(many_->may_lapse_at, expiry);
}

void holder_set::make_reader(holding& downgraded) noexcept {
  if (many_ && barring(downgraded)) --many_->barring;
  downgraded.mode = lock_mode::shared;
}

void holder_set::make_tombstone(holding& broken) noexcept {
  if (many_) {
    if (!barring(broken)) ++many_->barring;
    many_->by_id.erase(broken.id);
  }
  broken.tombstone = true;
  broken.provisional = false;
  // The contender may ask anew under its id while its tombstone stands.
  broken.id = {};
}

time_point holder_set::may_lapse_at() const noexcept {
  if (sole_) return sole_->expiry;
  return many_ ? many_->may_lapse_at : time_point::max();
}

void holder_set::audit() const {
  SALLYPORT_CHECK(!(sole_ && many_));
  if (!many_) return;
  SALLYPORT_CHECK(!many_->in_order.empty());
  std::size_t barring_count = 0;
  std::size_t live = 0;
  for (auto each = many_->in_order.begin(); each != many_->in_order.end(); ++each) {
    SALLYPORT_CHECK(each->expiry >= many_->may_lapse_at);
    if (barring(*each)) ++barring_count;
    if (each->tombstone) continue;
    ++live;
    const auto found = many_->by_id.find(each->id);
    SALLYPORT_CHECK(found != many_->by_id.end() && &*found->second == &*each);
  }
  SALLYPORT_CHECK(live == many_->by_id.size());
  SALLYPORT_CHECK(barring_count == many_->barring);
}

ticket* wait_queue::find(const holder_id& id) noexcept {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &*found->second;
}

ticket& wait_queue::push_back(ticket&& added) {
  // The place first: without memory for it nobody is in the queue whom it does not know.
  const auto place = by_id_.try_emplace(added.id).first;
  try {
    place->second = in_order_.insert(in_order_.end(), std::move(added));
  } catch (const std::bad_alloc&) {
    by_id_.erase(place);
    throw;
  }
  return *place->second;
}

void wait_queue::pop_front() {
  by_id_.erase(in_order_.front().id);
  in_order_.pop_front();
}

void wait_queue::remove(const holder_id& id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  in_order_.erase(found->second);
  by_id_.erase(found);
}

void wait_queue::make_room(time_point now) {
  if (in_order_.size() < sweep_at_) return;
  for (auto each = in_order_.begin(); each != in_order_.end();) {
    if (each->lapses > now) {
      ++each;
    } else {
      by_id_.erase(each->id);
      each = in_order_.erase(each);
    }
  }
  sweep_at_ = std::max(smallest_sweep, 2 * in_order_.size());
}

void wait_queue::audit() const {
  SALLYPORT_CHECK(in_order_.size() == by_id_.size());
  for (const ticket& each : in_order_) {
    const auto found = by_id_.find(each.id);
    SALLYPORT_CHECK(found != by_id_.end() && &*found->second == &each);
  }
}

lock_info describe(const lock_name& name, const lock_entry& entry, time_point now) {
  lock_info info;
  info.name = name.text();
  info.kind = entry.kind;
  info.permits = entry.permits;
  entry.holders.for_each([&](const holding& each) {
    if (each.tombstone) {
      const auto rest = std::chrono::ceil<milliseconds>(each.expiry - now);
      info.closed_for = std::max(info.closed_for, rest);
      return;
    }
    holder_info& holder = info.holders.emplace_back();
    describe_contender(holder, each);
    holder.token = each.tokens.first;
    holder.value = each.value();
    holder.held_for = shown(now - each.since);
    holder.remaining = shown(each.expiry - now);
    holder.claimed = !each.provisional;
  });
  if (!entry.queue) return info;
  for (const ticket& each : entry.queue->in_order()) {
    if (each.lapses <= now) continue;
    waiter_info& waiter = info.waiters.emplace_back();
    describe_contender(waiter, each);
    waiter.waited = shown(now - each.since);
  }
  return info;
}

bool dead(const lock_entry& entry, time_point now) {
  bool alive = false;
  entry.holders.for_each([&](const holding& each) { alive = alive || each.expiry > now; });
  if (alive || !entry.queue) return !alive;
  return std::ranges::all_of(entry.queue->in_order(),
                             [&](const ticket& each) { return each.lapses <= now; });
}

}  // namespace sallyport::backends::memory
