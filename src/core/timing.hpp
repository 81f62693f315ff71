#pragma once

#include "backend_api/requests.hpp"
#include <sallyport/options.hpp>

#include <cstdint>

/// The arithmetic of leases in one place: margins, windows, thirds.
namespace sallyport::core {

using backend_api::duration;
using backend_api::time_point;

/// What one contender needs to know about time. All spans are the effective ones: rounded to what
/// the store can do.
struct timing {
  duration lease_length{};
  duration margin{};  ///< taken off every deadline: drift x lease + what the store may expire early
  duration heartbeat{};      ///< a waiter asks again at least this often
  duration claim_window{};   ///< a handed-over grant is good for this long until it is claimed
  duration claim_delay{};    ///< how long the claim of such a grant is kept back
  duration ticket_length{};  ///< a place in the queue lives this long without being asked for
  duration request_timeout{};
  duration store_patience{};
  renewal renew = renewal::automatic;
};

/// What `make_timing` starts from.
struct timing_inputs {
  duration lease_length{};
  renewal renew = renewal::automatic;
  duration lease_granularity{};   ///< leases are rounded up to a multiple of this
  duration expiry_granularity{};  ///< the store may end a lease this much early
  double clock_drift = 0.01;
  duration heartbeat{};
  duration request_timeout{};
  duration store_patience{};
  duration claim_delay{};  ///< what the backend asks for
};

/// Claim windows are min(lease, this many heartbeats + margin): longer than a heartbeat plus its
/// round trip, so that a waiter always has proof, younger than the window, that it was still
/// waiting.
inline constexpr int heartbeats_per_claim_window = 3;
/// A claim is kept back for a small part of its window at most.
inline constexpr int claim_delays_per_window = 16;
/// A waiter that missed this many heartbeats is dead.
inline constexpr int heartbeats_per_ticket = 4;

[[nodiscard]] timing make_timing(const timing_inputs& inputs);

/// A store's word that a ticket lives longer is believed up to this many times its ticket_length: what is
/// counted from it stays far below what a clock can hold.
inline constexpr std::uint32_t max_ticket_stretch = 1000;
/// How many times its ticket_length the ticket lives, after this answer.
[[nodiscard]] std::uint32_t ticket_stretch_of(const backend_api::waiting& answer);

/// From one question to the next a waiter's pause grows to this many times at most.
inline constexpr int pause_growth = 2;
/// A waiter that moves up asks this often before it would be the first, at the pace it has.
inline constexpr int questions_until_first = 4;

/// What a waiter knew when it was last told to wait.
struct last_question {
  time_point sent;          ///< when it asked
  std::uint32_t ahead = 0;  ///< how many stood before it; zero: unknown
  duration pause{};         ///< how long it paused then
};

/// How long a waiter pauses after this answer to a question that was sent then: a heartbeat, or longer
/// if the store lets its ticket live longer, since many stand before it. Never so long that it would be
/// the first in between, at the pace at which it has moved up since its last question.
[[nodiscard]] duration pause_of_waiter(const timing& times, const backend_api::waiting& answer,
                                       time_point sent, const last_question& before);

/// A delay before asking a troubled store again: doubles from `first` to `cap`, with full jitter in
/// its upper half. `draw` is a random number in [0, 1).
[[nodiscard]] duration backoff(std::uint32_t failures, duration first, duration cap, double draw);

}  // namespace sallyport::core
