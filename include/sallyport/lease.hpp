#pragma once

#include <sallyport/error.hpp>
#include <sallyport/fence_pass.hpp>
#include <sallyport/lease_clock.hpp>
#include <sallyport/store_entry.hpp>
#include <sallyport/types.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>
#include <system_error>

namespace sallyport {

namespace runtime {
struct lease_record;
}
namespace detail {
class client_state;
class entry;
}  // namespace detail

enum class lease_state : std::uint8_t {
  held,  ///< confirmed by the store
  /// two thirds of the lease passed without a confirmed renewal, or the way to the store is broken
  /// (where the store's backend can tell); still valid until the deadline
  suspect,
  lost,     ///< can no longer be trusted; final
  released  ///< given back; final
};

enum class release_result : std::uint8_t {
  released,      ///< the store took it back, or it passed on to a waiter of this process
  already_lost,  ///< it was lost before: somebody else may have been inside
  /// the store did not answer; it is told again in the background until the lease has lapsed
  unknown
};

[[nodiscard]] std::string_view to_string(lease_state state) noexcept;
[[nodiscard]] std::string_view to_string(release_result result) noexcept;

/// What a lease says, without owning it: cheap to copy, good to pass to the code that does the
/// work.
/// Thread safety: all members.
class lease_view {
 public:
  /// True while the lease may be relied upon: not released, not lost, and its deadline is still to
  /// come. Costs one clock reading; asks nobody.
  [[nodiscard]] bool valid() const noexcept;
  [[nodiscard]] lease_state state() const noexcept;
  /// From this moment on valid() is false unless a renewal is confirmed first. Counted from before
  /// the request was sent.
  [[nodiscard]] lease_clock::time_point deadline() const noexcept;
  /// The length in force: what was asked for, rounded up to what the store can do.
  [[nodiscard]] std::chrono::milliseconds length() const noexcept;
  /// Fires when the lease is lost; never when it is released. A loss is never dropped. The tokens of
  /// a client's lost leases fire one after the other, on a thread that has nothing else to do:
  /// callbacks run there, and one that blocks delays the tokens (stop_requested() too) of leases that
  /// are lost after it. Nothing delays valid() and state().
  [[nodiscard]] std::stop_token lost() const;
  /// True once somebody has wished for this lock to be given back (observer::release_wanted). The
  /// lease is as good as before: a long job may look at a point where it can stop.
  [[nodiscard]] bool release_wanted() const noexcept;
  /// The fencing number. Throws lock_error (no_fencing) for semaphore permits, and on a store that
  /// does not promise fencing.
  [[nodiscard]] fencing_token token() const;
  [[nodiscard]] bool fenced() const noexcept;
  [[nodiscard]] lock_mode mode() const noexcept;
  [[nodiscard]] const lock_name& name() const noexcept;
  /// What to show at a fence::gate.
  [[nodiscard]] fence::pass fence_pass() const;
  /// How the store calls this grant; empty once the lease has ended, and on stores that do not say.
  [[nodiscard]] std::optional<store_entry> entry() const;
  /// Throws lock_error (lease_lost) unless valid().
  void ensure_valid() const;

 protected:
  friend class detail::client_state;
  lease_view(std::shared_ptr<detail::client_state> client,
             std::shared_ptr<runtime::lease_record> record) noexcept;
  [[nodiscard]] bool dead_by_fork() const noexcept;

  std::shared_ptr<detail::client_state> client_;
  std::shared_ptr<runtime::lease_record> record_;
};

/// One grant of a lock to one holder: an object you own, not a property of a thread. Move it where
/// you like; the destructor gives it back and never throws. While it lives it is renewed in the
/// background (unless renewal::never).
/// Blocks: release(), and so the destructor, waits for the store's word, up to
/// client_options::request_timeout (2 s) when the store does not answer. An event loop hands the lease
/// to another thread to end it there.
///
/// | state    | valid()          | renewal confirmed | deadline passes | release()       |
/// |----------|------------------|-------------------|-----------------|-----------------|
/// | held     | true             | held              | -> lost         | -> released     |
/// | suspect  | until deadline() | -> held           | -> lost         | -> released     |
/// | lost     | false            | stays lost        | -               | "already lost"  |
/// | released | false            | -                 | -               | "released"      |
/// token() is the same in every state. A moved-from lease may only be destroyed or assigned to; in
/// a forked child a lease is lost, and its destructor does nothing.
///
/// Thread safety: const members from any thread; release(), downgrade(), moves and destruction by
/// one thread at a time.
class lease : public lease_view {
 public:
  lease(lease&& other) noexcept = default;
  lease& operator=(lease&& other) noexcept;
  lease(const lease&) = delete;
  lease& operator=(const lease&) = delete;
  /// release(), unless the lease has ended: may block for up to a request's time-out.
  ~lease();

  /// Gives the lock back and waits (a request's time-out at most) for the store's word. Never
  /// throws.
  release_result release() noexcept;
  /// Writer to reader in one step: nobody gets in between, the token stays, waiting readers enter.
  /// For shared_mutex.
  /// Throws lock_error: lease_lost, not_supported (not a writer of a shared_mutex), unavailable,
  /// outcome_unknown.
  void downgrade();
  void downgrade(std::error_code& error) noexcept;
  /// A lease that somebody's release has handed over is good for a short time only until the store
  /// has heard our claim, which travels while the holder works already. Waits for that; returns at
  /// once when there is nothing to wait for. valid() tells what came of it.
  void confirm() noexcept;
  /// False after a move.
  [[nodiscard]] bool owns() const noexcept { return record_ != nullptr; }
  [[nodiscard]] lease_view view() const { return *this; }

 private:
  friend class detail::client_state;
  lease(std::shared_ptr<detail::client_state> client, std::shared_ptr<runtime::lease_record> record,
        std::shared_ptr<detail::entry> entry) noexcept;

  std::shared_ptr<detail::entry> entry_;  // set for leases of a recursive_mutex
};

}  // namespace sallyport
