#pragma once

#include "backend_api/drive_ticket.hpp"
#include "base/mutex.hpp"
#include <sallyport/lease_clock.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace sallyport::backends::etcd {

/// Who polls gRPC's completion queue: the transport's own thread, or a caller that is blocked
/// anyway. One thread at a time polls the connections, and it hears the answers to everybody's
/// requests; so a caller is served without a hop between threads only if the own thread keeps away.
///
/// | | who polls |
/// |---|---|
/// | a caller comes while nobody polls | the caller, until it is served |
/// | a caller comes while somebody polls | who polls goes on, the caller sleeps |
/// | the caller that polled goes, and others sleep | the own thread, at once |
/// | it goes and nobody sleeps, or it was alone when the own thread served it | nobody for `rest`: it may come again and poll itself; then the own thread |
///
/// So a caller that is alone pays for a hop the first time only, and what comes unasked may be heard
/// later by `rest`.
/// Thread safety: all members.
class poll_duty {
 public:
  static constexpr lease_clock::duration rest = std::chrono::milliseconds{5};

  /// For the own thread: blocks until it is its turn to poll.
  void await_turn() SALLYPORT_EXCLUDES(mutex_);
  /// For the own thread: it has polled once, and delivered what came.
  void end_turn() SALLYPORT_EXCLUDES(mutex_);

  /// For a caller that is about to block. True: it polls until end(true). False: it sleeps until it
  /// is served, and says end(false) then. The call lives until end().
  [[nodiscard]] bool begin(const backend_api::drive_ticket& call) SALLYPORT_EXCLUDES(mutex_);
  void end(bool polled) SALLYPORT_EXCLUDES(mutex_);

  /// Somebody waits for an answer without blocking here: the own thread does not rest now.
  void hurry() SALLYPORT_EXCLUDES(mutex_);
  /// From now on the own thread polls whoever else does, and nobody begins to.
  void close() SALLYPORT_EXCLUDES(mutex_);

 private:
  /// The one that sleeps was served and has only to wake up.
  [[nodiscard]] bool served_already() const SALLYPORT_REQUIRES(mutex_);
  void wake_own_thread() SALLYPORT_REQUIRES(mutex_);

  // The own thread sleeps on it; counts up with every call to wake.
  std::atomic<std::uint32_t> calls_{0};

  base::mutex mutex_;
  bool polled_ SALLYPORT_GUARDED_BY(mutex_) = false;  // somebody polls
  bool closed_ SALLYPORT_GUARDED_BY(mutex_) = false;
  std::size_t sleepers_ SALLYPORT_GUARDED_BY(mutex_) = 0;
  // The call of the one that sleeps; none: nobody, or two did at once since nobody had.
  const backend_api::drive_ticket* alone_ SALLYPORT_GUARDED_BY(mutex_) = nullptr;
  bool served_one_ SALLYPORT_GUARDED_BY(mutex_) = false;    // that slept alone, and has gone
  std::uint64_t callers_ SALLYPORT_GUARDED_BY(mutex_) = 0;  // that polled, so far
  lease_clock::time_point rests_until_ SALLYPORT_GUARDED_BY(mutex_) =
      lease_clock::time_point::min();
  lease_clock::time_point sleeps_until_ SALLYPORT_GUARDED_BY(mutex_) =
      lease_clock::time_point::min();
};

}  // namespace sallyport::backends::etcd
