#pragma once

#include "backend_api/requests.hpp"
#include "base/result.hpp"
#include "core/timing.hpp"
#include <sallyport/options.hpp>

#include <cstdint>
#include <memory_resource>
#include <optional>
#include <variant>
#include <vector>

namespace sallyport::core {

/// Names one turn of a lane; a late release of an earlier turn touches nothing.
using turn_number = std::uint64_t;

/// What a caller wants of its turn.
struct turn_wish {
  duration lease_length{};
  renewal renew = renewal::automatic;
  bool may_wait = true;

  /// Whether a grant that was asked for with `other` can be this caller's turn.
  [[nodiscard]] bool fits(const turn_wish& other) const noexcept {
    return lease_length == other.lease_length && renew == other.renew;
  }
};

/// Somebody who wants a turn; the runtime derives from it. While it waits it is a link of its lane's
/// queue, so that waiting allocates nothing: it must live until it was given a turn, was told busy or
/// failed, or was cancelled.
class turn_taker {
 public:
  turn_taker() = default;
  turn_taker(const turn_taker&) = delete;
  turn_taker& operator=(const turn_taker&) = delete;

 protected:
  ~turn_taker() = default;

 private:
  friend class local_turns;
  turn_taker* next_ = nullptr;  // in a ring; null: it does not wait
  turn_taker* previous_ = nullptr;
  turn_wish wish_;
};

/// How long the lock may stay inside the process.
struct turn_limits {
  std::uint32_t count = 1;
  duration time{};
};

/// Start a contender in the store with the wishes of this caller.
struct turn_ask {
  turn_taker* taker = nullptr;
  turn_wish wish;
};
/// Nobody wants it any more: give the attempt up.
struct turn_abandon {};
/// This caller has the lock now.
struct turn_give {
  turn_taker* taker = nullptr;
  turn_number turn = 0;
  fencing_token token;
};
/// Somebody else has it and this caller did not want to wait.
struct turn_busy {
  turn_taker* taker = nullptr;
};
struct turn_fail {
  turn_taker* taker = nullptr;
  base::failure why;
};
/// Give the grant back to the store.
struct turn_part {};
/// Draw new tokens for the grant (a renewal), then report drew().
struct turn_draw {};

using turn_action =
    std::variant<turn_ask, turn_abandon, turn_give, turn_busy, turn_fail, turn_part, turn_draw>;
using turn_actions = std::pmr::vector<turn_action>;

/// The queue of one name inside a process: callers wait here, so that the process is one contender
/// in the store, and the grant passes from caller to caller for a bounded number of turns and a
/// bounded time. Then it goes back through the store, whoever waits there. A turn with another
/// lease length or renewal mode also goes back through the store: a contender never changes its
/// lease length, so a late renewal can't shorten a lease. Pure; thread safety: none.
/// Invariants: (1) at most one turn is out. (2) Tokens given are strictly growing. (3) After lost()
/// or a part the rest of the token block is never used. (4) Callers are served in the order in
/// which they came.
///
/// | state   | want            | last waiter cancels | won        | leave (its turn)        | lost      |
/// |---------|-----------------|---------------------|------------|-------------------------|-----------|
/// | idle    | ask             | -                   | -          | -                       | -         |
/// | asking  | queue, or busy  | abandon             | give       | -                       | -         |
/// | held    | queue, or busy  | -                   | -          | give, draw, or part+ask | ask, if queued |
/// | drawing | queue, or busy  | part, once drawn    | -          | -                       | ask, if queued |
///
/// When the head cancels while asking and the attempt does not suit the next, that is abandoned and
/// the next asks anew.
class local_turns {
 public:
  local_turns() = default;
  local_turns(const local_turns&) = delete;
  local_turns& operator=(const local_turns&) = delete;

  /// REQUIRES: `taker` does not wait.
  void want(turn_taker& taker, const turn_wish& wish, turn_actions& out);
  /// The caller no longer waits. One that does not wait is ignored: its turn may have come meanwhile.
  void cancel(turn_taker& taker, turn_actions& out);

  /// The attempt's outcome.
  void won(const backend_api::token_block& tokens, time_point now, turn_actions& out);
  void busy(turn_actions& out);
  /// Fails the head if it had no patience with the store, else everybody.
  void failed(const base::failure& why, turn_actions& out);

  /// The turn ends. `grant_fresh`: enough of the grant's time is left for another turn. `limits` are
  /// the same for all turns. False: not the turn that is out.
  bool leave(turn_number turn, bool grant_fresh, const turn_limits& limits, time_point now,
             turn_actions& out);
  /// The answer to turn_draw; nullopt: the store did not give any (the grant goes back).
  void drew(const std::optional<backend_api::token_block>& tokens, turn_actions& out);
  /// The grant is gone.
  void lost(turn_actions& out);
  /// The turn that is out took the grant along (a downgrade): the lane goes on without it.
  void detach(turn_actions& out);

  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_; }
  [[nodiscard]] bool turn_out() const noexcept { return state_ == state::held; }
  [[nodiscard]] bool idle() const noexcept { return state_ == state::idle && waiting_ == 0; }

 private:
  enum class state : std::uint8_t { idle, asking, held, drawing };

  void append(turn_taker& taker, const turn_wish& wish) noexcept;
  void remove(turn_taker& taker) noexcept;
  [[nodiscard]] turn_taker& take_head() noexcept;
  void ask_for_head(turn_actions& out);
  void end_attempt(turn_actions& out);
  void give_to_head(turn_actions& out);
  void part(turn_actions& out);

  turn_taker* head_ = nullptr;  // the first who waits; the last is the one before it in the ring
  turn_wish grant_wish_;        // of the contender that asks or holds
  backend_api::token_block tokens_;  // first = the next to give; first > last: none left
  time_point first_turn_at_;
  turn_number turn_ = 0;
  std::uint32_t waiting_ = 0;
  std::uint32_t turns_given_ = 0;  // of the present grant
  state state_ = state::idle;
};

}  // namespace sallyport::core
