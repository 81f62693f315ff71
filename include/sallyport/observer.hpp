#pragma once

#include <sallyport/types.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace sallyport {

/// Why a lease became suspect, or was lost.
enum class event_reason : std::uint8_t {
  none,
  /// suspect, lost: no renewal was confirmed in time. `error` says what the store's trouble is, if it
  /// is in any: else this process did not get to run, or its machine slept
  not_renewed,
  disconnected,  ///< suspect: the way to the store is broken
  ended,         ///< lost: a lease that is never renewed came to its end
  /// lost: the store no longer knows it as ours: broken, deleted, or lapsed by the store's own clock
  taken_away,
};

[[nodiscard]] std::string_view to_string(event_reason reason) noexcept;

/// What happened to one lock.
struct lock_event {
  std::string name{};
  lock_kind kind = lock_kind::mutex;
  fencing_token token{};  ///< zero where there is none (yet)
  /// acquired, not_acquired, failed: time waited; released, release_unknown, lost, release_wanted:
  /// time held; else zero
  std::chrono::nanoseconds took{0};
  event_reason reason = event_reason::none;  ///< suspect, lost
  /// failed, release_unknown: why; suspect, lost: the store's trouble, if it is in any
  std::error_code error{};
  std::string detail{};  ///< the sentence behind `error`; may be empty
};

/// The way to a client's store broke, or is there again.
struct store_event {
  std::error_code error{};  ///< away: why; back: why it was away
  std::string detail{};     ///< the sentence behind `error`; may be empty
  /// back: time since it was noticed that the store was away
  std::chrono::nanoseconds away{0};
};

/// Told what a client's locks do. Override what you need.
/// Thread safety: called from the notifier's thread, one event after the other, in the order in
/// which they happened. A slow observer delays the next events and what elections' observers hear,
/// never a renewal and never the firing of lost().
/// Bounds: at most 65,536 events wait for a slow observer; what happens beyond that is not told, but
/// counted (missed). What must not be missed is in the lease: valid(), state() and lost().
class observer {
 public:
  observer() = default;
  observer(const observer&) = delete;
  observer& operator=(const observer&) = delete;
  virtual ~observer() = default;

  virtual void waiting(const lock_event&) {
  }  ///< the lock was not free; this process queues in the store
  virtual void acquired(const lock_event&) {}      ///< a caller has its turn
  virtual void not_acquired(const lock_event&) {}  ///< a caller gave up, or was told "held"
  virtual void failed(const lock_event&) {}        ///< the store could not say: `error`
  virtual void renewed(const lock_event&) {}
  virtual void suspect(const lock_event&) {}  ///< `reason` says why; still valid
  virtual void lost(const lock_event&) {}     ///< `reason` says why; final
  /// The store took it back, or it passed on inside the process. Told when the store's word has come:
  /// the next holder, if it is a caller of the same client, may have been told as acquired by then.
  virtual void released(const lock_event&) {}
  /// The store did not answer the release: nobody knows whether the next one can enter yet. It is told
  /// again in the background until the lease has lapsed.
  virtual void release_unknown(const lock_event&) {}
  /// Somebody wishes that this lock be given back soon. Nothing happens by itself: the lease is as
  /// good as before. Only some stores can carry such a wish (ZooKeeper: Curator's revocation).
  virtual void release_wanted(const lock_event&) {}

  /// A request of this client failed, because the store could not be reached or did not answer, or
  /// its connection broke. Once an outage. A client that sends nothing may not notice one. Leases go
  /// on until they are lost, and waits until client_options::store_patience. Failures that say nothing
  /// of the store are no outage: want of memory or threads here, a caller that left before its request
  /// was sent, a server that answers but has others in its way (a lock time-out, say).
  virtual void store_away(const store_event&) {}
  /// The store has answered again; what this process says without asking it (not_supported, say) is no
  /// answer. Of a store of several servers some may be away and others answer:
  /// then outages follow each other.
  virtual void store_back(const store_event&) {}

  /// So many events were dropped here, because too many waited for this observer already or memory
  /// was short: told after the last event before the gap and before the first one after it.
  virtual void missed(std::uint64_t /*events*/) {}
};

/// Counters built on the observer: hand one to client_options::watcher (and what else is to hear of
/// things, a log say, to client_options::watchers) and read it at any time.
/// Thread safety: all members.
class metrics final : public observer {
 public:
  struct snapshot {
    std::uint64_t waiting = 0;
    std::uint64_t acquired = 0;
    std::uint64_t not_acquired = 0;
    std::uint64_t failed = 0;
    std::uint64_t renewed = 0;
    std::uint64_t suspect = 0;
    std::uint64_t lost = 0;
    std::uint64_t released = 0;
    std::uint64_t release_unknown = 0;  ///< not among `released`
    std::uint64_t release_wanted = 0;
    std::uint64_t store_away = 0;  ///< outages; the present one, if store_back is one less
    std::uint64_t store_back = 0;
    std::uint64_t missed = 0;            ///< events that are in none of the other counts
    std::chrono::nanoseconds waited{0};  ///< in all
    std::chrono::nanoseconds held{0};    ///< in all
    std::chrono::nanoseconds away{0};    ///< in all, of outages that are over
  };

  [[nodiscard]] snapshot read() const;

  void waiting(const lock_event& event) override;
  void acquired(const lock_event& event) override;
  void not_acquired(const lock_event& event) override;
  void failed(const lock_event& event) override;
  void renewed(const lock_event& event) override;
  void suspect(const lock_event& event) override;
  void lost(const lock_event& event) override;
  void released(const lock_event& event) override;
  void release_unknown(const lock_event& event) override;
  void release_wanted(const lock_event& event) override;
  void store_away(const store_event& event) override;
  void store_back(const store_event& event) override;
  void missed(std::uint64_t events) override;

 private:
  std::atomic<std::uint64_t> waiting_{0}, acquired_{0}, not_acquired_{0}, failed_{0}, renewed_{0},
      suspect_{0}, lost_{0}, released_{0}, release_unknown_{0}, release_wanted_{0}, store_away_{0},
      store_back_{0}, missed_{0};
  std::atomic<std::int64_t> waited_ns_{0}, held_ns_{0}, away_ns_{0};
};

}  // namespace sallyport
