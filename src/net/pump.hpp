#pragma once

#include "base/descriptor.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include <sallyport/lease_clock.hpp>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace sallyport::net {

/// Waits for sockets and times, and tells their owners. It has no thread: whoever has time calls
/// run_once(). Everything it waits for is behind one descriptor, so that the right to wait can be
/// handed from thread to thread.
/// Thread safety: all members; run_once() by one thread at a time.
class pump {
 public:
  using time_point = lease_clock::time_point;

  /// Somebody who is told. Both are called by run_once() without a mutex; both may come once more
  /// for something that is over, so look before you act.
  class source {
   public:
    source() = default;
    source(const source&) = delete;
    source& operator=(const source&) = delete;
    virtual ~source() = default;

    /// The watched descriptor is ready for these (EPOLLIN ...).
    virtual void ready(std::uint32_t events) = 0;
    /// The alarm's time has come.
    virtual void due(time_point now) = 0;
  };

  /// A source's number; never given twice.
  using number = std::uint64_t;

  static base::result<std::shared_ptr<pump>> make();
  /// Use make().
  pump(base::descriptor everything, base::descriptor timer, base::descriptor bell) noexcept;

  /// Readable while run_once() has something to do.
  [[nodiscard]] int descriptor_number() const noexcept { return everything_.number(); }

  /// Takes a source in. The pump keeps it alive until it is dismissed.
  number enroll(std::shared_ptr<source> who) SALLYPORT_EXCLUDES(mutex_);
  /// It is told nothing any more, but for what another thread is just telling it.
  void dismiss(number who) SALLYPORT_EXCLUDES(mutex_);
  /// Tells when `descriptor` is ready, instead of what it watched before. False: the kernel refused.
  bool watch(number who, int descriptor, std::uint32_t events) SALLYPORT_EXCLUDES(mutex_);
  /// Call before the descriptor is closed.
  void unwatch(number who) SALLYPORT_EXCLUDES(mutex_);
  /// Calls due() once, at this time or when an alarm set before is due, whichever is earlier. Costs
  /// a system call only if it is earlier than all other alarms.
  void alarm(number who, time_point when) SALLYPORT_EXCLUDES(mutex_);

  /// Waits until something has happened or the deadline has passed, and tells who is concerned.
  /// time_point{}: does not wait; time_point::max(): for ever.
  void run_once(time_point deadline) SALLYPORT_EXCLUDES(mutex_);
  /// Makes the run_once() that is under way, or the next one, return soon.
  void ring() const noexcept;

 private:
  struct entry {
    std::shared_ptr<source> who;
    int descriptor = -1;
    std::uint16_t generation = 0;  // of the descriptor: events of an older one are ignored
    time_point alarm = time_point::max();
  };

  void arm(time_point when) SALLYPORT_REQUIRES(mutex_);
  void tell_ready(std::uint64_t label, std::uint32_t events) SALLYPORT_EXCLUDES(mutex_);
  void tell_due() SALLYPORT_EXCLUDES(mutex_);

  const base::descriptor everything_;
  const base::descriptor timer_;
  const base::descriptor bell_;

  base::mutex mutex_;
  std::unordered_map<number, entry> sources_ SALLYPORT_GUARDED_BY(mutex_);
  number last_number_ SALLYPORT_GUARDED_BY(mutex_) = 0;
  time_point armed_for_ SALLYPORT_GUARDED_BY(mutex_) = time_point::max();
};

}  // namespace sallyport::net
