#pragma once

#include <string_view>

/// The table of what things may cost. Every line is counted by a test of this folder, which fails
/// when the count is above its bound, and also when it is not above `stale_share` of it, so that the
/// table stays true. A change that raises a count above its bound changes this file in the same
/// commit and says why there; one that lowers a count much lowers the bound.
namespace sallyport::costs {

struct bound {
  std::string_view counted;
  double most;
};

/// With a count that is this share of it, or less, a bound says nothing any more.
inline constexpr double stale_share = 0.8;

// Heap, in bytes, of each of 100,000 leases that a client holds on memory:, the store's own entry
// and malloc's bookkeeping included. Never above 1,100, or 1,240 with the mutex, whatever is added.
inline constexpr bound heap_of_lease{"heap bytes a lease, its mutex gone", 936};
inline constexpr bound heap_of_lease_and_mutex{"heap bytes a lease and its mutex", 1'086};

// Allocations (malloc, calloc, realloc, aligned_alloc; of all threads) of one acquire() and
// release() that meets nobody.
inline constexpr bound allocations_memory{"allocations a pair, memory:", 4};
inline constexpr bound allocations_local{"allocations a pair, local:", 7};
inline constexpr bound allocations_redis{"allocations a pair, redis:", 9};

// User-space instructions (callgrind) of the calling thread for one acquire() and release() that
// meets nobody. They depend on the compiler and its libraries: hence some percent of room.
inline constexpr bound instructions_memory{"instructions a pair, memory:", 9'300};
inline constexpr bound instructions_local{"instructions a pair, local:", 21'700};
inline constexpr bound instructions_redis{"instructions a pair, redis:", 32'000};

// System calls of all threads for one acquire() and release() that meets nobody on redis: send,
// epoll_pwait2 and recv, for each; and a getrandom for every 32 pairs.
inline constexpr bound system_calls_redis{"system calls a pair, redis:", 6.1};
// System calls of `sallyport run x -- /bin/true` on a local: store that is there already: those of
// the wrapper and the guard, from their start to their end, and those of the child up to its
// execve. Some depend on which thread is faster.
inline constexpr bound system_calls_run{"system calls of sallyport run, local:", 285};
// How often such a run passes the gate of the store, through which one process passes at a time.
inline constexpr bound gate_passes_run{"gate passes of sallyport run, local:", 4};

// Redis: one caller that stands in line where nobody else does, and the release that hands the lock
// over to it. Commands are what clients send; calls are what their scripts do inside of the server.
inline constexpr bound handoff_commands{"commands a hand-off, redis:", 2};
inline constexpr bound handoff_scripts{"scripts a hand-off, redis:", 2};
inline constexpr bound handoff_calls{"calls inside of scripts a hand-off, redis:", 22};

// Threads that a client adds to its process: opened and never used; with a lease held; with a
// caller that waits as well (the caller's own thread not counted); after a lease was lost and its
// callback has run; and all of this with an observer.
inline constexpr bound threads_idle_memory{"threads of an idle client, memory:", 0};
inline constexpr bound threads_holding_memory{"threads of a holder, memory:", 1};
inline constexpr bound threads_waiting_memory{"threads of a waiter, memory:", 1};
inline constexpr bound threads_after_loss_memory{"threads after a loss, memory:", 2};
inline constexpr bound threads_observed_memory{"threads of an observed client, memory:", 3};
inline constexpr bound threads_idle_local{"threads of an idle client, local:", 0};
inline constexpr bound threads_holding_local{"threads of a holder, local:", 1};
inline constexpr bound threads_waiting_local{"threads of a waiter, local:", 1};
inline constexpr bound threads_after_loss_local{"threads after a loss, local:", 2};
inline constexpr bound threads_idle_redis{"threads of an idle client, redis:", 0};
inline constexpr bound threads_holding_redis{"threads of a holder, redis:", 1};
inline constexpr bound threads_waiting_redis{"threads of a waiter, redis:", 1};
inline constexpr bound threads_after_loss_redis{"threads after a loss, redis:", 2};

}  // namespace sallyport::costs
