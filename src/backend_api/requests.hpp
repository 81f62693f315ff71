#pragma once

#include "backend_api/holder_id.hpp"
#include <sallyport/lease_clock.hpp>
#include <sallyport/types.hpp>

#include <cstdint>
#include <string_view>
#include <variant>

/// What core asks of a store and what a store answers. Each request names its contender by holder
/// id; each is idempotent under that id, so it may be sent again when its outcome is unknown.
namespace sallyport::backend_api {

using time_point = lease_clock::time_point;
using duration = lease_clock::duration;

/// The tokens first..last, reserved for one grant: the first turn uses `first`, local turns use the
/// rest.
struct token_block {
  fencing_token first;
  fencing_token last;

  friend bool operator==(const token_block&, const token_block&) = default;
};

/// "Let me in, or put me in the queue." Asked again under the same id it is the heartbeat of a
/// waiter: the ticket keeps its place and lives on, and a grant that came meanwhile is told
/// ("already yours": the stored token and remaining time). References are good only during the
/// call.
struct acquire_request {
  const lock_name& name;
  lock_kind kind = lock_kind::mutex;
  lock_mode mode = lock_mode::exclusive;
  holder_id holder;
  duration lease_length{};  ///< how long a grant answered to this very request is good for
  duration
      /// how long a grant made by somebody else's release waits for this contender's claim
      claim_window{};
  duration
      ticket_length{};    ///< how long the place in the queue lives without being asked for again
  bool may_wait = false;  ///< false: when held, answer `held` and write nothing
  std::uint32_t permits = 1;  ///< semaphore: the N this contender believes in; the stored N wins
  std::uint32_t token_count = 1;  ///< how many tokens to reserve; at least 1
  /// for `who`: callers of this process that stand behind this contender
  std::uint32_t local_waiters = 0;
  std::string_view value;  ///< election: what the entry says
  time_point answer_by;    ///< the backend answers by then: outcome_unknown if the store did not
  /// An earlier acquire of this contender may have reached the store; otherwise the store is spared
  /// the search for it.
  bool asked_before = true;
  /// The calling thread is about to drive() until this is answered: nobody else needs to listen.
  bool driven = false;
  /// False: nobody will renew the grant, which ends by itself after lease_length. For stores that
  /// keep several contenders' grants alive together.
  bool renewed = true;
};

/// The lock is this contender's.
struct granted {
  token_block tokens;
  /// What is left of the grant, by the store's clock, at some moment between the request's sending
  /// and its answer.
  duration remaining{};
  /// Made by somebody else's release and not claimed yet: good for the rest of the claim window
  /// only.
  bool provisional = false;
  std::uint32_t permits = 1;  ///< semaphore: the stored N

  friend bool operator==(const granted&, const granted&) = default;
};

/// In the queue (or, on stores that have none, to be asked again).
struct waiting {
  /// Ask again after this long at the latest, even if nothing is heard: for example when the
  /// holder's lease ends.
  duration ask_again_after{};
  std::uint32_t permits = 1;
  /// No smaller than any token of this name that the store had drawn by then: a granted_notice
  /// whose tokens are not larger is older than this answer, and its grant is gone. Zero where the
  /// store can't tell; then its notices carry no grant.
  fencing_token newest_token{};
  /// How many stand before it in the queue; zero where the store does not tell.
  std::uint32_t ahead = 0;
  /// The ticket lives this many times `ticket_length`, since so many stand before it: the contender may
  /// ask this many times as rarely.
  std::uint32_t ticket_stretch = 1;

  friend bool operator==(const waiting&, const waiting&) = default;
};

/// Somebody else has it, and the request did not want to wait.
struct held {
  friend bool operator==(const held&, const held&) = default;
};

using acquire_answer = std::variant<granted, waiting, held>;

/// Compare-and-extend: if this contender holds the lock, it is good for `lease_length` from now;
/// never re-creates what lapsed. It is also the claim of a provisional grant, and, with token_count
/// > 0, draws a new block of tokens.
struct renew_request {
  const lock_name& name;
  lock_kind kind = lock_kind::mutex;
  lock_mode mode = lock_mode::exclusive;
  holder_id holder;
  duration lease_length{};
  std::uint32_t token_count = 0;  ///< 0: keep the block; n: reserve n new, larger tokens
  std::uint32_t local_waiters = 0;
  time_point answer_by;
};

struct renewed {
  token_block tokens;    ///< the stored block, or the newly drawn one
  duration remaining{};  ///< as in `granted`

  friend bool operator==(const renewed&, const renewed&) = default;
};

/// This contender holds nothing: lapsed, broken, released, or never there.
struct gone {
  friend bool operator==(const gone&, const gone&) = default;
};

/// `waiting` says: not a holder, but its ticket is still in the queue.
using renew_answer = std::variant<renewed, waiting, gone>;

/// Ends the contender. `release` gives back a grant with direct hand-off; `withdraw` leaves the
/// queue or, if the grant came meanwhile, releases it with hand-off, in one atomic step. Neither
/// touches anybody else's entry.
struct leave_request {
  const lock_name& name;
  lock_kind kind = lock_kind::mutex;
  lock_mode mode = lock_mode::exclusive;
  holder_id holder;
  time_point answer_by;
  bool driven = false;  ///< as in acquire_request
};

enum class leave_answer : std::uint8_t {
  left,       ///< it held the lock or stood in the queue, and no longer does
  not_there,  ///< there was nothing of this contender
};

}  // namespace sallyport::backend_api
