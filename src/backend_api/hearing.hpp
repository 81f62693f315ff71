#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/drive_ticket.hpp"
#include "base/descriptor.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <pthread.h>

namespace sallyport::backend_api {

/// How soon somebody has to hear what is under way when no caller is blocked any more.
enum class urgency : std::uint8_t {
  nothing,  ///< nothing is under way
  later,    ///< nobody waits for it: a straggler's answer, or a server that is away
  now
};

/// What a client without threads of its own has to hear: everything that comes from outside.
class ear {
 public:
  ear() = default;
  ear(const ear&) = delete;
  ear& operator=(const ear&) = delete;
  virtual ~ear() = default;

  /// Waits until something has come or the deadline has passed, and deals with it. Called by one
  /// thread at a time, without a mutex. False: closed, nothing will come any more.
  virtual bool hear(time_point deadline) = 0;
  /// Makes the hear() that is under way, or the next one, return soon. Must not block.
  virtual void ring() noexcept = 0;
  /// What is under way that has to be heard even if nobody is blocked: an answer to a request of the
  /// watchdog, say. Asked when a caller that heard leaves; must not call back.
  [[nodiscard]] virtual urgency unfinished() = 0;
};

/// Who hears for a client that has no thread: a caller that blocks anyway, or the runtime's watchdog
/// through attention_fd().
///
/// | callers inside drive() | who hears |
/// |---|---|
/// | none | nobody, unless something is unfinished() or somebody said be_heard(): then the watchdog |
/// | one that came alone | itself: no other thread is woken for its answer |
/// | more | who came alone until it is served, from then on the watchdog; the others sleep |
///
/// For what is unfinished but may wait (`urgency::later`) the watchdog is called only after
/// `stragglers_time`, so that the next caller can hear it.
///
/// So a lone caller pays for no hop between threads, and many callers share one reader instead of
/// waking each other to read. The switch of attention_fd() costs a system call; it is made when the
/// reader changes, not for every call.
/// Limit: nobody takes the place of a caller that is inside hear(). If it is not let run (stopped, or
/// starved by its priority), what came for others waits with it, the answers to renewals too; the
/// watchdog's own timers do not, so losses are told in time.
/// Thread safety: all members. The owner stays alive during a call.
/// Invariant: while a caller sleeps in drive() and nobody hears, attention_fd() is on. Both are
/// decided under one mutex, so no wake-up falls between the two.
class hearing final : private drive_waker {
 public:
  /// What attention_fd() will be, and the alarm in it.
  struct attention {
    base::descriptor set;
    base::descriptor alarm;
  };
  /// `everything`: readable while hear() has something to do.
  static base::result<attention> make_attention(int everything);

  /// REQUIRES: `who` and `everything` outlive this; `how` was made for `everything`.
  hearing(ear& who, int everything, attention how) noexcept;

  /// As backend::drive. `not_driven` only after the ear was closed. Passes on what hear() throws;
  /// then the watchdog is called to hear.
  drive_outcome drive(drive_ticket& ticket, time_point deadline) SALLYPORT_EXCLUDES(mutex_);
  /// Somebody waits without driving: for an answer to a request that was not made by a blocked
  /// caller, or for notices.
  void be_heard() SALLYPORT_EXCLUDES(mutex_);
  [[nodiscard]] int attention_fd() const noexcept { return attention_.set.number(); }
  /// As backend::attend. Passes on what hear() throws.
  void attend() SALLYPORT_EXCLUDES(mutex_);

  /// How many callers are inside drive(); for tests.
  [[nodiscard]] std::size_t blocked() SALLYPORT_EXCLUDES(mutex_);
  /// So long after two callers were blocked at once the watchdog goes on hearing, also for one that
  /// comes alone: callers that take turns would else hand the hearing to and fro.
  static constexpr duration crowd_memory = std::chrono::milliseconds{2};

  /// So long a lone caller has to come again and hear the stragglers of its last request itself,
  /// before the watchdog is woken for them.
  static constexpr duration stragglers_time = std::chrono::milliseconds{20};

  /// How often attention was switched on or off; for tests and tuning.
  [[nodiscard]] std::size_t switches() SALLYPORT_EXCLUDES(mutex_);

 private:
  enum class role : std::uint8_t { leader, follower };

  void wake() noexcept override;
  role come_in() SALLYPORT_EXCLUDES(mutex_);
  [[nodiscard]] bool crowd_was_here() SALLYPORT_REQUIRES(mutex_);
  /// True: nobody hears, and now this caller does.
  bool take_the_lead() SALLYPORT_EXCLUDES(mutex_);
  void go(role mine) SALLYPORT_EXCLUDES(mutex_);
  void end_attending() SALLYPORT_EXCLUDES(mutex_);
  drive_outcome lead(drive_ticket& ticket, time_point deadline);
  void begin_leading() SALLYPORT_REQUIRES(mutex_);
  void switch_attention(bool on) SALLYPORT_REQUIRES(mutex_);
  void attend_to(urgency what) SALLYPORT_REQUIRES(mutex_);
  void set_alarm() SALLYPORT_REQUIRES(mutex_);
  /// True: it was due, and is no longer set.
  bool take_alarm() SALLYPORT_REQUIRES(mutex_);

  ear& ear_;
  const int everything_;
  const attention attention_;          // an epoll of `everything_`, silent while a caller hears
  std::atomic<pthread_t> leader_{};    // the caller that hears; zero: none does
  std::atomic<bool> attended_{false};  // the watchdog was here once, so it runs

  // Held over the switch of `attention_` as well: a watchdog that is woken in the middle must sleep
  // here, not find the place taken and look again and again.
  base::mutex mutex_;
  std::size_t blocked_ SALLYPORT_GUARDED_BY(mutex_) = 0;  // callers inside drive()
  bool heard_ SALLYPORT_GUARDED_BY(mutex_) = false;       // somebody is inside hear()
  bool attention_on_ SALLYPORT_GUARDED_BY(mutex_) = true;
  bool attention_wanted_ SALLYPORT_GUARDED_BY(mutex_) = false;  // when the leader has gone
  bool alarm_set_ SALLYPORT_GUARDED_BY(mutex_) = false;         // attention comes on with it
  std::size_t switches_ SALLYPORT_GUARDED_BY(mutex_) = 0;
  // When two callers were last blocked at once; min: long ago.
  time_point last_crowd_ SALLYPORT_GUARDED_BY(mutex_) = time_point::min();
};

}  // namespace sallyport::backend_api
