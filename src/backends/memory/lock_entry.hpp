#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/holder_id.hpp"
#include "backend_api/requests.hpp"
#include <sallyport/inspect.hpp>
#include <sallyport/types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

/// What the lock table keeps about one name. Plain data with its bookkeeping; the rules of locking
/// are in lock_table.
namespace sallyport::backends::memory {

using backend_api::duration;
using backend_api::holder_id;
using backend_api::time_point;
using backend_api::token_block;

/// Which client of the store asks. Chosen by the caller; notices are addressed by it.
using client_number = std::uint64_t;

/// What holders and waiters have in common.
struct contender {
  holder_id id;
  client_number client = 0;
  std::shared_ptr<const backend_api::owner_info> owner;
  std::shared_ptr<const std::string> text;  ///< election: what the entry says; null: nothing
  time_point since;                         ///< when it became a holder, or joined the queue
  std::uint32_t local_waiters = 0;
  lock_mode mode = lock_mode::exclusive;

  [[nodiscard]] std::string_view value() const noexcept {
    return text ? std::string_view{*text} : std::string_view{};
  }
  void set_value(std::string_view fresh) {
    text = fresh.empty() ? nullptr : std::make_shared<const std::string>(fresh);
  }
};

/// A grant, or what is left of a broken one.
struct holding : contender {
  bool provisional = false;  ///< handed over and not claimed yet
  /// broken: keeps its place until `expiry`, belongs to nobody (id is zero)
  bool tombstone = false;
  time_point expiry{};  ///< from this moment on it holds nothing
  token_block tokens{};
};

/// A place in the queue.
struct ticket : contender {
  std::uint32_t token_count = 1;
  time_point lapses{};  ///< from this moment on the waiter is taken for dead
  duration claim_window{};
};

/// The holders and tombstones of one name, in the order of their grants. One holder costs no
/// allocation.
/// Thread safety: none. References to holdings are good until the next add or remove.
/// Invariants: (1) among holdings that are no tombstones, ids differ. (2) Nothing expires before
/// may_lapse_at().
class holder_set {
 public:
  [[nodiscard]] bool empty() const noexcept { return !sole_ && !many_; }
  [[nodiscard]] std::size_t size() const noexcept;
  /// Some holding is exclusive or a tombstone: no reader may join.
  [[nodiscard]] bool bars_readers() const noexcept;
  /// The holding of this contender, or null. Never a tombstone.
  [[nodiscard]] holding* find(const holder_id& id) noexcept;

  /// Throws std::bad_alloc: then nothing happened.
  void add(holding&& added);
  void remove(const holding& removed);
  /// Removes what has lapsed by `now`, after visit(holding) for each. False: nothing had.
  template <class Visit>
  bool remove_lapsed(time_point now, Visit visit) {
    if (may_lapse_at() > now) return false;
    if (sole_) {
      visit(std::as_const(*sole_));
      sole_.reset();
      return true;
    }
    return remove_lapsed_of_many(now, visit);
  }
  void extend(holding& extended, time_point expiry) noexcept;
  void make_reader(holding& downgraded) noexcept;
  void make_tombstone(holding& broken) noexcept;

  /// Not later than the earliest expiry; time_point::max() when empty.
  [[nodiscard]] time_point may_lapse_at() const noexcept;

  /// Calls visit(holding) for each in the order of grants.
  template <class Visit>
  void for_each(Visit visit) const {
    if (sole_) visit(*sole_);
    if (many_) {
      for (const holding& each : many_->in_order) visit(each);
    }
  }
  /// The first in the order of grants for which test(holding) is true, or null.
  template <class Test>
  holding* find_if(Test test) {
    if (sole_) return test(*sole_) ? &*sole_ : nullptr;
    if (many_) {
      for (holding& each : many_->in_order) {
        if (test(each)) return &each;
      }
    }
    return nullptr;
  }

  /// Aborts when an invariant is broken.
  void audit() const;

 private:
  struct crowd {
    std::list<holding> in_order;
    std::unordered_map<holder_id, std::list<holding>::iterator> by_id;  // no tombstones
    time_point may_lapse_at = time_point::max();
    std::size_t barring = 0;  // exclusive ones and tombstones
  };

  static bool barring(const holding& one) noexcept {
    return one.tombstone || one.mode == lock_mode::exclusive;
  }
  static void append(crowd& all, holding&& added);
  std::list<holding>::iterator erase(std::list<holding>::iterator position);

  template <class Visit>
  bool remove_lapsed_of_many(time_point now, Visit& visit) {
    bool removed = false;
    many_->may_lapse_at = time_point::max();
    for (auto each = many_->in_order.begin(); each != many_->in_order.end();) {
      if (each->expiry <= now) {
        visit(std::as_const(*each));
        each = erase(each);
        removed = true;
      } else {
        many_->may_lapse_at = std::min(many_->may_lapse_at, each->expiry);
        ++each;
      }
    }
    if (many_->in_order.empty()) many_.reset();
    return removed;
  }

  // Never both.
  std::optional<holding> sole_;
  std::unique_ptr<crowd> many_;
};

/// The waiters of one name, first come first.
/// Thread safety: none. References to tickets are good until the ticket is removed.
/// Invariant: ids differ.
class wait_queue {
 public:
  [[nodiscard]] bool empty() const noexcept { return in_order_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return in_order_.size(); }
  /// REQUIRES: not empty.
  [[nodiscard]] ticket& front() noexcept { return in_order_.front(); }
  [[nodiscard]] const ticket& front() const noexcept { return in_order_.front(); }
  [[nodiscard]] ticket* find(const holder_id& id) noexcept;

  /// Throws std::bad_alloc: then nothing happened.
  ticket& push_back(ticket&& added);
  void pop_front();
  void remove(const holder_id& id);
  /// Removes the dead from between the living when the queue has doubled since the last time: the
  /// table itself meets dead waiters only at the head.
  void make_room(time_point now);

  [[nodiscard]] const std::list<ticket>& in_order() const noexcept { return in_order_; }

  /// Aborts when an invariant is broken.
  void audit() const;

 private:
  static constexpr std::size_t smallest_sweep = 16;

  std::list<ticket> in_order_;
  std::unordered_map<holder_id, std::list<ticket>::iterator> by_id_;
  std::size_t sweep_at_ = smallest_sweep;
};

/// One name.
struct lock_entry {
  holder_set holders;
  std::unique_ptr<wait_queue> queue;  ///< null when nobody waits
  std::uint32_t permits = 1;          ///< semaphore: the stored N
  lock_kind kind = lock_kind::mutex;

  [[nodiscard]] bool somebody_waits() const noexcept { return queue != nullptr; }
  [[nodiscard]] bool vacant() const noexcept { return holders.empty() && !queue; }
  void drop_empty_queue() noexcept {
    if (queue && queue->empty()) queue.reset();
  }
};

/// What `who` shows of it.
[[nodiscard]] lock_info describe(const lock_name& name, const lock_entry& entry, time_point now);
/// Nobody holds it and nobody waits: all that is in the entry has lapsed.
[[nodiscard]] bool dead(const lock_entry& entry, time_point now);

}  // namespace sallyport::backends::memory
