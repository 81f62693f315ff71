#pragma once

#include "backend_api/drive_ticket.hpp"
#include "backend_api/requests.hpp"
#include "base/result.hpp"
#include <sallyport/capabilities.hpp>
#include <sallyport/inspect.hpp>
#include <sallyport/store_entry.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::backend_api {

/// The answer to one renewal of a batch.
struct renew_outcome {
  holder_id holder;
  base::result<renew_answer> answer;
};

/// Where a backend reports. Every accepted request is answered exactly once, by its answer_by at
/// the latest; answers are matched by holder id (core has at most one acquire, one renewal and one
/// leave of an id under way). Notices come unasked and are hints: they may be lost, late or
/// doubled.
/// Thread safety: called from any thread, also from inside the request's own call; never call with
/// a mutex held.
class events {
 public:
  events() = default;
  events(const events&) = delete;
  events& operator=(const events&) = delete;
  virtual ~events() = default;

  virtual void acquire_answered(const holder_id& who, base::result<acquire_answer> answer) = 0;
  /// One or more renewals; a batch may be answered in parts.
  virtual void renewals_answered(std::span<renew_outcome> outcomes) = 0;
  /// The answer to release or withdraw.
  virtual void leave_answered(const holder_id& who, base::result<leave_answer> answer) = 0;
  virtual void downgrade_answered(const holder_id& who, base::result<renew_answer> answer) = 0;

  /// Somebody's release made this waiter the holder. Without a grant: "perhaps; claim it to find
  /// out".
  virtual void granted_notice(const holder_id& who, std::optional<granted> grant) = 0;
  /// The store says that this contender no longer holds anything (broken, session ended, key
  /// deleted).
  virtual void lost_notice(const holder_id& who) = 0;
  /// Somebody asks this holder, politely, to give its grant back. Most stores have no such word.
  virtual void release_wanted_notice(const holder_id& /*who*/) {}
  /// A watched name changed.
  virtual void changed_notice(const lock_name& name) = 0;
  /// Notices may have been missed: every waiter re-reads its state.
  virtual void reconnected() = 0;
  /// The way to the store is broken, of which a backend tells that notices it by itself: leases are
  /// suspect until a renewal is confirmed.
  virtual void disconnected() {}
};

template <class T>
using completion = std::function<void(base::result<T>)>;

enum class break_mode : std::uint8_t {
  /// a tombstone stays for the remaining time: nobody enters before the old holder's deadline
  safe,
  at_once  ///< the next waiter enters now: only fenced resources are safe
};

enum class drive_outcome : std::uint8_t {
  finished,         ///< the ticket is finished
  deadline_passed,  ///< the deadline came first
  not_driven,       ///< this backend has threads of its own: wait for the ticket instead
  no_memory         ///< this thread has none for what it heard; the runtime's own hears from now on
};

/// One store. Small and asynchronous: a request returns at once and is answered through `events`.
/// CONTRACT.md says in words what every backend must promise; tests/contract proves it.
/// Thread safety: every member may be called from any thread. Requests of one holder id that are
/// issued one after the other take effect in that order or answer outcome_unknown.
class backend {
 public:
  backend() = default;
  backend(const backend&) = delete;
  backend& operator=(const backend&) = delete;
  /// Calls close().
  virtual ~backend() = default;

  [[nodiscard]] virtual const sallyport::capabilities& capabilities() const = 0;
  /// Names the store's token space, for fencing gates. Empty until the store has said it; it is known
  /// before anything is granted. A store that has lost its data has another one when it is met again.
  /// The text stays good for the life of the backend. Neither blocks nor calls anybody, so it may be
  /// called with a mutex held.
  [[nodiscard]] virtual const std::string& store_id() const noexcept {
    return capabilities().store_id;
  }

  virtual void acquire(const acquire_request& request) = 0;
  /// Several at once, in this order: the heartbeats of many waiters fall together. A store that can
  /// take them in one command does.
  virtual void acquire_all(std::span<const acquire_request> batch) {
    for (const acquire_request& each : batch) acquire(each);
  }
  /// All due renewals of a client at once; at most max_renewals_per_batch.
  virtual void renew(std::span<const renew_request> batch) = 0;
  virtual void release(const leave_request& request) = 0;
  virtual void withdraw(const leave_request& request) = 0;
  /// Exclusive to shared in one step, keeping the token; adjacent waiting readers enter.
  virtual void downgrade(const renew_request& request) = 0;

  /// Election: replaces the entry's value if this contender holds it (false: it does not).
  virtual void set_value(const renew_request& holder, std::string_view value,
                         completion<bool> done) = 0;
  /// Starts or ends changed_notice for a name; a backend without notices does nothing, and the
  /// caller re-reads.
  virtual void watch(const lock_name& name, bool on) = 0;

  /// Up to `limit` locks in byte order whose names begin with `prefix` and come after `after`
  /// (empty: from the start).
  virtual void list(std::string_view prefix, std::string_view after, std::size_t limit,
                    completion<std::vector<lock_info>> done) = 0;
  /// Everything about one name; nullopt when it is free and nobody waits.
  virtual void who(const lock_name& name, completion<std::optional<lock_info>> done) = 0;
  /// Takes the grant with this token away. Fails with no_such_lock or token_mismatch when there is
  /// none.
  virtual void break_lock(const lock_name& name, fencing_token observed, break_mode mode,
                          completion<std::monostate> done) = 0;

  /// How the store calls this contender's grant, as far as the backend knows without asking;
  /// nullopt: it holds none, or the store has no names that others could use.
  [[nodiscard]] virtual std::optional<store_entry> entry_of(const holder_id& /*who*/) const {
    return std::nullopt;
  }

  /// How long a holder that was let in by somebody else's release is to keep its claim back; zero:
  /// not at all. For a backend that works on the caller's own thread, where "off the critical path"
  /// means later: who releases before that never claims.
  [[nodiscard]] virtual duration claim_delay() const { return duration::zero(); }

  /// Runs the backend's I/O on the calling thread until the ticket is finished or the deadline has
  /// come. Completions of other callers may run here too. A backend whose library has its own
  /// threads answers not_driven at once.
  virtual drive_outcome drive(drive_ticket& ticket, time_point deadline) = 0;

  /// For a backend without threads of its own: readable while there is something for attend() to
  /// do and nobody drives; -1: never. The runtime watches it from a thread that it has anyway.
  [[nodiscard]] virtual int attention_fd() const { return -1; }
  /// Does what attention_fd() announced, without blocking. Not called after close().
  virtual void attend() {}

  /// The client is about to close, and the store has answered for all of its contenders: blocks until
  /// what was said meanwhile to parts of the store that the answers did not wait for has been heard
  /// there, or until `deadline`. Closing without would leave what those were to give back until it
  /// lapses. Called by one thread, before close(), not from inside of an event.
  virtual void settle(time_point /*deadline*/) {}

  /// Ends all I/O. Requests under way are answered outcome_unknown first; after return no event is
  /// delivered any more, and later requests are answered `closed`. Idempotent.
  virtual void close() = 0;
};

inline constexpr std::size_t max_renewals_per_batch = 4096;

/// Who opens a store: shown by `who`, the same for all requests of a client.
struct owner_info {
  std::string host;
  std::int64_t pid = 0;
  std::string label;
  /// client_options::companion_pid; 0: none
  std::int64_t companion_pid = 0;
};

struct open_request {
  std::string uri;  ///< whole, as the user gave it; may hold secrets, never goes to a log
  owner_info owner;
  events& listener;  ///< must outlive the backend
};

/// One entry of the registry: a backend for some URI schemes.
struct backend_descriptor {
  std::span<const std::string_view> schemes;
  std::string_view summary;  ///< one line for people
  /// Checks the address and makes the backend. Connecting may happen later: an unreachable store
  /// shows as unavailable.
  base::result<std::unique_ptr<backend>> (*open)(const open_request& request);
  /// What the store's administrator runs where its users may not make what the backend needs, as a
  /// text for the store's own tools. Asks nobody. Null: the store needs nothing.
  base::result<std::string> (*schema)(std::string_view uri) = nullptr;
};

}  // namespace sallyport::backend_api
