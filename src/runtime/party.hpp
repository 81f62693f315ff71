#pragma once

#include "backend_api/holder_id.hpp"
#include "core/acquire_attempt.hpp"
#include "core/farewell.hpp"
#include "core/lease_keeper.hpp"
#include "core/local_turns.hpp"
#include "runtime/engine.hpp"
#include "runtime/lease_record.hpp"
#include "runtime/lock_spec.hpp"
#include "runtime/lost_turns.hpp"
#include "runtime/timer_queue.hpp"

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

/// The engine's own books; nobody else includes this. All of it is guarded by the engine's mutex.
namespace sallyport::runtime {

/// A contender on its way to a grant.
struct attempting {
  core::acquire_attempt machine;
  acquire_waiter* solo = nullptr;            // readers and permits: who asked
  std::shared_ptr<const std::string> value;  // election: sent with every question; null: none
  bool may_wait = false;
  bool queued = false;  // the store said "waiting" at least once
  bool asked = false;   // a request was sent
};

/// A contender that holds the lock.
struct holding {
  core::lease_keeper keeper;
  backend_api::token_block tokens;
  std::shared_ptr<lease_record> turn;     // who is inside; null while tokens are drawn
  const std::string* store_id = nullptr;  // of the store that granted it; the backend's
  std::uint32_t permits = 1;
  bool draw_wanted = false;  // a draw waits for the renewal under way
  bool drawing = false;
  bool release_wanted = false;  // of the grant: also of turns that are still to come
};

/// A contender that is being cleaned up in the store.
struct leaving {
  core::farewell machine;
  word_waiter* releaser = nullptr;
  bool finished = false;  // only an acquire's answer is still awaited
  int failures = 0;       // since the client departs
};

static_assert(sizeof(leaving) <= sizeof(holding));

/// One holder id's life: attempting, then holding, then leaving; any of them may be the last.
struct party : timer {
  party(const backend_api::holder_id& name, std::shared_ptr<const lock_spec> what)
      : timer(timer::kind::party), mode(what->mode), id(name), spec(std::move(what)) {}

  // First, because here they fill up what the timer leaves of its last word.
  lock_mode mode;
  bool over = false;
  bool awaited = false;  // the departing client waits for its farewell

  const backend_api::holder_id id;
  const std::shared_ptr<const lock_spec> spec;
  lane* home = nullptr;  // the local queue it serves; null: a reader, a permit, or detached
  word_waiter* downgrader = nullptr;
  word_waiter* claimer = nullptr;                  // waits for the claim's end, whichever
  time_point acquire_sent_at = time_point::min();  // min: none under way
  time_point renewal_sent_at = time_point::min();
  time_point late_until = time_point::min();  // a request without answer may be executed until then
  // Leaving is no larger than holding, and needs no memory: what was granted can be given back.
  std::variant<std::unique_ptr<attempting>, holding, leaving> life;

  [[nodiscard]] attempting* as_attempting() {
    auto* found = std::get_if<std::unique_ptr<attempting>>(&life);
    return found != nullptr ? found->get() : nullptr;
  }
  [[nodiscard]] holding* as_holding() { return std::get_if<holding>(&life); }
  [[nodiscard]] leaving* as_leaving() { return std::get_if<leaving>(&life); }
};

/// The queue of one name inside this process.
struct lane {
  explicit lane(std::shared_ptr<const lock_spec> what) : spec(std::move(what)) {}
  [[nodiscard]] core::turn_limits limits() const noexcept {
    return {.count = spec->local_turns, .time = spec->local_turn_time};
  }

  const std::shared_ptr<const lock_spec> spec;  // the first caller's; names the lane
  core::local_turns turns;
  party* current = nullptr;  // asks or holds for the lane
  bool to_sweep = false;
};

/// What is to be done once the mutex is free.
struct outbox {
  struct acquire_order {
    std::shared_ptr<const lock_spec> spec;
    backend_api::holder_id holder;
    std::shared_ptr<const std::string> value;
    std::uint32_t local_waiters = 0;
    bool may_wait = false;
    bool asked_before = false;
    time_point answer_by;
  };
  struct renew_order {
    std::shared_ptr<const lock_spec> spec;
    backend_api::holder_id holder;
    lock_mode mode = lock_mode::exclusive;
    std::uint32_t token_count = 0;
    std::uint32_t local_waiters = 0;
    time_point answer_by;
  };
  struct leave_order {
    std::shared_ptr<const lock_spec> spec;
    backend_api::holder_id holder;
    lock_mode mode = lock_mode::exclusive;
    bool release = false;
    time_point answer_by;
  };

  explicit outbox(time_point clock) : now(clock) {}
  outbox(const outbox&) = delete;
  outbox& operator=(const outbox&) = delete;

  const time_point now;
  // What one call has to do is little: it has room here, without an allocation.
  std::array<std::byte, 1536> room;
  std::pmr::monotonic_buffer_resource arena{room.data(), room.size()};
  std::pmr::vector<acquire_waiter*> winners{&arena};
  std::pmr::vector<acquire_waiter*> losers{&arena};
  std::pmr::vector<word_waiter*> words{&arena};
  std::pmr::vector<acquire_order> acquires{&arena};
  std::pmr::vector<renew_order> renewals{&arena};
  std::pmr::vector<renew_order> downgrades{&arena};
  std::pmr::vector<leave_order> leaves{&arena};
  std::pmr::vector<std::function<void()>> news{&arena};  // for the observer
  lost_turns lost;
  std::pmr::vector<party*> dead{&arena};
  std::pmr::vector<lane*> perhaps_idle{&arena};
  time_point wake = time_point::max();
  bool driven = false;  // the caller is about to drive the backend
};

/// The request behind an order; refers to the order.
[[nodiscard]] inline backend_api::acquire_request to_request(const outbox::acquire_order& order,
                                                             bool driven) {
  const core::timing& times = order.spec->times;
  return {.name = order.spec->name,
          .kind = order.spec->kind,
          .mode = order.spec->mode,
          .holder = order.holder,
          .lease_length = times.lease_length,
          .claim_window = times.claim_window,
          .ticket_length = times.ticket_length,
          .may_wait = order.may_wait,
          .permits = order.spec->permits,
          .token_count = order.spec->local_turns,
          .local_waiters = order.local_waiters,
          .value = order.value ? std::string_view{*order.value} : std::string_view{},
          .answer_by = order.answer_by,
          .asked_before = order.asked_before,
          .driven = driven,
          .renewed = times.renew == renewal::automatic};
}

/// The request behind an order; refers to the order's spec.
[[nodiscard]] inline backend_api::renew_request to_request(const outbox::renew_order& order) {
  return {.name = order.spec->name,
          .kind = order.spec->kind,
          .mode = order.mode,
          .holder = order.holder,
          .lease_length = order.spec->times.lease_length,
          .token_count = order.token_count,
          .local_waiters = order.local_waiters,
          .answer_by = order.answer_by};
}

}  // namespace sallyport::runtime
