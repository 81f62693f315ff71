#pragma once

#include "base/random.hpp"
#include "sim/clock.hpp"
#include <sallyport/types.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::sim {

/// What may go wrong. The rate of a fault of messages is a probability for each message; the rate
/// of any other is how often it happens in one base lease, on average.
enum class fault : std::uint8_t {
  // Of messages.
  lose_request,
  lose_reply,
  double_request,
  slow_message,
  lose_notice,
  double_notice,
  slow_notice,
  reset_on_send,
  pause_at_step,
  // Of processes and their machines.
  reset,
  cut_to_store,
  cut_from_store,
  partition,
  pause,
  kill,
  suspend,
  drift,
  // Of the store.
  store_pause,
  store_restart,
  break_safely,
  // Outside of the model: exclusion is not promised any more, the order of tokens is.
  store_clock_step,
  big_drift,
  break_at_once,
  stop_clock,
  // Of a local store. The first ones strike with a probability for each transaction.
  kill_in_transaction,
  stop_in_gate,
  stop_after_commit,
  commit_fails,
  reserve_fails,
  power_cut,  ///< timed, as all that follow
  // Of a Redis server.
  script_flush,
  foreign_lock,  ///< a client of another library takes the name for a while
  // ... outside of the model.
  data_loss,  ///< a restart without what was written, all of it or lately
  flush_all,
  foreign_delete,  ///< somebody deletes the key of a lock
  // Of a node of a quorum.
  eviction,    ///< a key goes that holds no lock: a line, its tickets, or the mark of membership
  locks_lost,  ///< a node loses its locks and lines in silence; the counter and the mark are durable
  // Of a cluster with a leader.
  isolation,     ///< fewer than half of the members, often the leader, are cut off from the rest
  election,      ///< somebody else leads, and the old leader may be the last to hear of it
  watch_cancel,  ///< etcd: the server ends a watch
  full_store,    ///< etcd: for a while it has no room: whoever wants to write is refused
  // The store's own words, with a probability for each request.
  refuse_request,  ///< it will not, and has done nothing
  fail_after,      ///< it has done it, and says that it is in trouble
  number_of_faults
};

inline constexpr std::size_t fault_count = static_cast<std::size_t>(fault::number_of_faults);
inline constexpr std::size_t first_fault_out_of_model =
    static_cast<std::size_t>(fault::store_clock_step);
inline constexpr std::size_t first_local_fault =
    static_cast<std::size_t>(fault::kill_in_transaction);
inline constexpr std::size_t first_timed_fault = static_cast<std::size_t>(fault::reset);

[[nodiscard]] std::string_view to_string(fault which) noexcept;
/// Whether it strikes at moments of its own.
[[nodiscard]] constexpr bool timed(std::size_t which) noexcept {
  return (which >= first_timed_fault && which < first_local_fault) ||
         (which >= static_cast<std::size_t>(fault::power_cut) &&
          which < static_cast<std::size_t>(fault::refuse_request));
}

/// One name and what it is used as.
struct lock_plan {
  lock_name name;
  lock_kind kind = lock_kind::mutex;
  std::uint32_t permits = 1;
};

/// What goes wrong with a quorum. Half of the seeds have one kind of trouble only, and much of it: what
/// it takes to show a mistake comes together too seldom otherwise.
enum class quorum_story : std::uint8_t {
  anything,
  forgetting,  ///< nodes lose their data, one at a time, as is allowed
  vanishing,   ///< out of model: single votes vanish, often, also between two steps of a round
  clock_steps,
  amnesia,  ///< out of model: whole nodes lose their votes in silence
};

/// Everything that a seed decides before its simulation begins.
struct options {
  std::uint64_t seed = 0;
  bool local = false;      ///< one machine with a local store, instead of a network with a server
  bool redis = false;      ///< the server is Redis
  bool redlock = false;    ///< several Redis servers, of which a majority decides
  bool etcd = false;       ///< an etcd cluster
  bool zookeeper = false;  ///< a ZooKeeper ensemble
  bool prompt = false;     ///< local: nothing but deaths happens, so all must hear of all at once
  bool in_model = true;
  std::array<double, fault_count> rates{};  ///< 0: never

  std::vector<lock_plan> locks;
  std::uint32_t processes = 2;
  std::uint32_t callers = 1;  ///< of each process
  std::uint32_t local_turns = 1;
  quorum_story story = quorum_story::anything;
  std::uint32_t nodes = 1;                ///< redlock: how many; also the members of a cluster
  std::uint32_t durable_nodes = 0;        ///< redlock: the first so many keep all over a restart
  std::chrono::milliseconds max_lease{};  ///< redlock: what the marks say
  std::uint32_t spares = 0;               ///< redlock: nodes beside the members, in some lists
  bool former_member = false;             ///< redlock: the first of them was a member once
  bool single_tokens = false;             ///< the store reserves one token at a time
  bool notices_without_grant = false;
  std::uint32_t deaf_clients = 0;  ///< Redis: every so-manieth client never hears a notice; 0: none
  /// Redis: a script serves two waiters at a time, and tickets live longer from the fourth in line on.
  bool small_bounds = false;
  double readers = 0.5;  ///< how much of a shared_mutex's callers are readers
  double tries = 0.2;    ///< calls that do not wait
  double timed = 0.4;    ///< calls that wait for some time
  double cancels = 0.1;
  double long_holds = 0.1;    ///< turns that last for several leases
  double fixed_leases = 0.2;  ///< leases that are not renewed

  duration lease{};  ///< the base of all times
  duration longest_lease{};
  duration shortest_lease{};
  duration tick{};  ///< ZooKeeper: of the servers
  duration heartbeat{};
  duration request_timeout{};
  duration store_patience{};
  duration local_turn_time{};
  duration expiry_granularity{};
  duration message_delay{};  ///< mean, on a good day
  duration think_time{};
  duration safety_phase{};

  /// A cluster with a leader, where places are held by sessions.
  [[nodiscard]] bool clustered() const noexcept { return etcd || zookeeper; }
  [[nodiscard]] double rate(fault which) const noexcept {
    return rates[static_cast<std::size_t>(which)];
  }
};

/// Which store a seed runs on: network, local, redis, redlock, etcd or zookeeper.
[[nodiscard]] std::string_view store_of(std::uint64_t seed);
/// Draws a random subset of the faults, then their rates, then the rest.
[[nodiscard]] options draw_options(std::uint64_t seed, base::random& random);

/// For people: every option on a line of its own.
[[nodiscard]] std::string describe(const options& drawn);

/// How the simulation draws a span: uniform in [from, to].
[[nodiscard]] duration draw_between(base::random& random, duration from, duration to);
/// Exponential with this mean, at most ten times as long.
[[nodiscard]] duration draw_around(base::random& random, duration mean);

}  // namespace sallyport::sim
