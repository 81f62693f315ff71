#pragma once

#include <sallyport/types.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace sallyport {

/// What happened to one lock.
struct lock_event {
  std::string name;
  lock_kind kind = lock_kind::mutex;
  fencing_token token;  ///< zero where there is none (yet)
  std::chrono::nanoseconds took{
      0};  ///< acquired: time waited; released, lost, release_wanted: time held; else zero
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
  virtual void failed(const lock_event&) {}        ///< the store could not say
  virtual void renewed(const lock_event&) {}
  virtual void suspect(const lock_event&) {
  }  ///< two thirds of the lease passed without a confirmed renewal
  virtual void lost(const lock_event&) {}
  virtual void released(const lock_event&) {}
  /// Somebody wishes that this lock be given back soon. Nothing happens by itself: the lease is as
  /// good as before. Only some stores can carry such a wish (ZooKeeper: Curator's revocation).
  virtual void release_wanted(const lock_event&) {}
  /// So many events were dropped here, because too many waited for this observer already or memory
  /// was short: told after the last event before the gap and before the first one after it.
  virtual void missed(std::uint64_t /*events*/) {}
};

/// Counters built on the observer: hand one to client_options::watcher and read it at any time.
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
    std::uint64_t release_wanted = 0;
    std::uint64_t missed = 0;            ///< events that are in none of the other counts
    std::chrono::nanoseconds waited{0};  ///< in all
    std::chrono::nanoseconds held{0};    ///< in all
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
  void release_wanted(const lock_event& event) override;
  void missed(std::uint64_t events) override;

 private:
  std::atomic<std::uint64_t> waiting_{0}, acquired_{0}, not_acquired_{0}, failed_{0}, renewed_{0},
      suspect_{0}, lost_{0}, released_{0}, release_wanted_{0}, missed_{0};
  std::atomic<std::int64_t> waited_ns_{0}, held_ns_{0};
};

}  // namespace sallyport
