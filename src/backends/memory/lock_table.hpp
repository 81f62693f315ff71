#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/requests.hpp"
#include "backends/memory/lock_entry.hpp"
#include "base/result.hpp"
#include <sallyport/inspect.hpp>
#include <sallyport/types.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

/// The store's side of locking, as a pure state machine.
namespace sallyport::backends::memory {

enum class notice_kind : std::uint8_t {
  granted,  ///< the queue was served: this waiter holds the lock now, provisionally
  lost,     ///< this holder's grant was broken
  changed   ///< a watched name has other holders or another value
};

/// What somebody other than the asker is to be told.
struct notice {
  client_number client = 0;
  notice_kind kind = notice_kind::changed;
  holder_id holder;                           ///< granted, lost
  std::optional<backend_api::granted> grant;  ///< granted
  lock_name name;

  friend bool operator==(const notice&, const notice&) = default;
};

/// Who asks.
struct requester {
  client_number client = 0;
  std::shared_ptr<const backend_api::owner_info> owner;  ///< for `who`; null: nothing is known
};

/// All names of one store: holders, queues, tombstones, tokens, watches. The reference of what a
/// store must do: the `memory:` backend runs it under a mutex, the simulator runs it as its store.
///
/// Pure: it never reads a clock; `now` comes with every operation and decides alone what has
/// lapsed. A `now` smaller than the last one is allowed (a store's clock was set back): what was
/// removed stays gone, the rest lives on longer.
/// Deterministic: the same operations give the same answers and the same notices in the same order.
///
/// Every operation first settles its name: lapsed holders and tombstones go, dead waiters at the
/// head of the queue go, and the queue is served: while its head is compatible with the holders, it
/// becomes one, provisionally, for its claim window. Notices are appended to `notices`, never
/// removed from it; they may also concern the asker itself.
///
/// | id is \ call  | acquire                  | renew             | release, withdraw | downgrade |
/// |---|---|---|---|---|
/// | holder        | granted: tokens and rest | extended, claimed | left, hand-off    | as renew  |
/// | in the queue  | waiting, ticket lives on | waiting           | not_there; left   | gone      |
/// | anything else | granted, waiting or held | gone              | not_there         | gone      |
///
/// Anything else: unknown, lapsed, released, or broken (also while its tombstone stands).
///
/// Thread safety: none.
/// Invariants: (1) a name with neither holders nor tombstones nor waiters is not in the table. (2)
/// A mutex or election has at most one holder or tombstone; a shared_mutex one exclusive holder or
/// any number of shared ones; a semaphore at most the stored N. (3) Every token drawn is larger
/// than every one drawn before, whatever its name. (4) The head of a queue is never compatible with
/// the holders.
class lock_table {
 public:
  /// The first token drawn is floor + 1.
  explicit lock_table(fencing_token floor = {}) noexcept : last_token_(floor.value()) {}
  lock_table(const lock_table&) = delete;
  lock_table& operator=(const lock_table&) = delete;

  /// Fails with wrong_kind when the name is in use as another kind. `held` writes nothing.
  base::result<backend_api::acquire_answer> acquire(const backend_api::acquire_request& request,
                                                    const requester& from, time_point now,
                                                    std::vector<notice>& notices);
  backend_api::renew_answer renew(const backend_api::renew_request& request, time_point now,
                                  std::vector<notice>& notices);
  backend_api::leave_answer release(const backend_api::leave_request& request, time_point now,
                                    std::vector<notice>& notices);
  backend_api::leave_answer withdraw(const backend_api::leave_request& request, time_point now,
                                     std::vector<notice>& notices);
  /// Fails with not_supported for a kind other than shared_mutex. Never draws tokens.
  base::result<backend_api::renew_answer> downgrade(const backend_api::renew_request& request,
                                                    time_point now, std::vector<notice>& notices);
  /// False: this contender does not hold the name.
  bool set_value(const backend_api::renew_request& holder, std::string_view value, time_point now,
                 std::vector<notice>& notices);
  /// Takes the grant whose block contains `observed` away; fails with no_such_lock or
  /// token_mismatch. Broken at_once, a tombstone goes too.
  base::result<std::monostate> break_lock(const lock_name& name, fencing_token observed,
                                          backend_api::break_mode mode, time_point now,
                                          std::vector<notice>& notices);

  std::optional<lock_info> who(const lock_name& name, time_point now, std::vector<notice>& notices);
  /// In byte order; settles the names it meets. Looks at all names, but sorts and settles no more
  /// than the page needs.
  std::vector<lock_info> list(std::string_view prefix, std::string_view after, std::size_t limit,
                              time_point now, std::vector<notice>& notices);

  /// Idempotent. A name may be watched while nobody uses it.
  void watch(client_number client, const lock_name& name, bool on);
  /// Ends all watches of a client. Its holders and tickets stay: leases outlive their client.
  void forget(client_number client);

  /// Settles every name, in byte order. Never needed for correctness: names that nobody asks for
  /// any more are also dropped when the table has doubled since the last time.
  void sweep(time_point now, std::vector<notice>& notices);

  /// When the first holder or tombstone of this name lapses; nullopt when it has none.
  [[nodiscard]] std::optional<time_point> next_expiry(const lock_name& name) const;
  /// How many places the queue of this name has, those of dead waiters that nobody met yet
  /// included.
  [[nodiscard]] std::size_t ticket_count(const lock_name& name) const;
  /// How many names have any state. Names whose holders lapsed count until an operation or sweep()
  /// meets them.
  [[nodiscard]] std::size_t entry_count() const noexcept { return names_.size(); }
  /// The largest token ever drawn, or the floor.
  [[nodiscard]] fencing_token last_token() const noexcept { return fencing_token(last_token_); }

  /// Aborts when an invariant is broken. Not for use with planted defects.
  void audit() const;

 private:
  struct name_hash {
    // Not noexcept: libstdc++ then keeps each hash in its node instead of computing it again on
    // every step.
    std::size_t operator()(const lock_name& name) const {
      return std::hash<std::string_view>{}(name.text());
    }
  };
  using name_map = std::unordered_map<lock_name, lock_entry, name_hash>;
  class operation;

  static constexpr std::size_t smallest_sweep = 1024;

  name_map::iterator make_entry(const lock_name& name);
  void drop_entry(name_map::iterator position);
  void drop_dead_names(time_point now, std::vector<notice>& notices);
  token_block draw(std::uint32_t count) noexcept;
  std::vector<const lock_name*> matching_names(std::string_view prefix,
                                               std::string_view after) const;
  void settle_all(std::vector<const lock_name*> names, time_point now,
                  std::vector<notice>& notices);

  name_map names_;
  name_map::node_type
      spare_;  // the last dropped entry: a name taken and given back again allocates nothing
  std::map<lock_name, std::vector<client_number>> watchers_;
  std::uint64_t last_token_;
  std::size_t sweep_at_ = smallest_sweep;
  std::map<holder_id, holding> lapsed_;  // only for the planted defect renew_by_upsert
};

}  // namespace sallyport::backends::memory
