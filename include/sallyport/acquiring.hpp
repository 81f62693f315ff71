#pragma once

#include <sallyport/error.hpp>
#include <sallyport/lease.hpp>
#include <sallyport/lease_clock.hpp>

#include <chrono>
#include <optional>
#include <stop_token>
#include <system_error>
#include <utility>

/// The calls that wait, written once for every kind of lock.
namespace sallyport::detail {

/// So long from now, on the lease clock; never overflows.
template <class Rep, class Period>
lease_clock::time_point from_now(const std::chrono::duration<Rep, Period>& wait) {
  using seconds = std::chrono::duration<double>;
  constexpr seconds for_ever = std::chrono::hours{24 * 365 * 50};
  if (seconds(wait) > for_ever) return lease_clock::time_point::max();
  if (seconds(wait) <= seconds::zero()) return lease_clock::time_point::min();
  return lease_clock::now() + std::chrono::ceil<lease_clock::duration>(wait);
}

/// The same instant on the lease clock.
template <class Clock, class Duration>
lease_clock::time_point on_lease_clock(const std::chrono::time_point<Clock, Duration>& when) {
  if constexpr (std::is_same_v<Clock, lease_clock>) {
    return std::chrono::time_point_cast<lease_clock::duration>(when);
  } else {
    // As doubles: the difference to a clock's extreme values overflows.
    using seconds = std::chrono::duration<double>;
    return from_now(seconds(when.time_since_epoch()) - seconds(Clock::now().time_since_epoch()));
  }
}

/// Throws to_lock_error(error).
[[noreturn]] void throw_failure(const std::error_code& error);

/// `Lock` provides: std::optional<lease> wait(lease_clock::time_point until, std::stop_token,
/// std::error_code&) noexcept. Each call has a throwing form and a twin that reports through
/// std::error_code and never throws, also when the process can start no thread or has no memory
/// (no_thread, not_enough_memory: nothing is left behind); to_lock_error has the sentence. An empty
/// optional means "somebody else has it" (or: stopped, timed out); an error is never reported as that.
template <class Lock>
class acquiring {
 public:
  /// Waits as long as it takes. Throws lock_error when the store is broken.
  [[nodiscard]] lease acquire() {
    std::error_code error;
    auto got = self().wait(lease_clock::time_point::max(), {}, error);
    if (!got) throw_failure(error);
    return std::move(*got);
  }
  /// Waits until `stop` is requested: then empty.
  [[nodiscard]] std::optional<lease> acquire(std::stop_token stop) {
    return checked(lease_clock::time_point::max(), std::move(stop));
  }
  [[nodiscard]] std::optional<lease> acquire(std::error_code& error) noexcept {
    return self().wait(lease_clock::time_point::max(), {}, error);
  }
  [[nodiscard]] std::optional<lease> acquire(std::stop_token stop,
                                             std::error_code& error) noexcept {
    return self().wait(lease_clock::time_point::max(), std::move(stop), error);
  }

  /// One try, no queue; writes nothing to the store when the lock is held.
  [[nodiscard]] std::optional<lease> try_acquire() {
    return checked(lease_clock::time_point::min(), {});
  }
  [[nodiscard]] std::optional<lease> try_acquire(std::error_code& error) noexcept {
    return self().wait(lease_clock::time_point::min(), {}, error);
  }

  /// One deadline covers every step inside. A store in trouble is an error also then, as is one that
  /// has not answered at all (outcome_unknown) though it had half a second for it.
  template <class Rep, class Period>
  [[nodiscard]] std::optional<lease> try_acquire_for(const std::chrono::duration<Rep, Period>& wait,
                                                     std::stop_token stop = {}) {
    return checked(from_now(wait), std::move(stop));
  }
  template <class Rep, class Period>
  [[nodiscard]] std::optional<lease> try_acquire_for(const std::chrono::duration<Rep, Period>& wait,
                                                     std::stop_token stop,
                                                     std::error_code& error) noexcept {
    return self().wait(from_now(wait), std::move(stop), error);
  }
  template <class Clock, class Duration>
  [[nodiscard]] std::optional<lease> try_acquire_until(
      const std::chrono::time_point<Clock, Duration>& deadline, std::stop_token stop = {}) {
    return checked(on_lease_clock(deadline), std::move(stop));
  }
  template <class Clock, class Duration>
  [[nodiscard]] std::optional<lease> try_acquire_until(
      const std::chrono::time_point<Clock, Duration>& deadline, std::stop_token stop,
      std::error_code& error) noexcept {
    return self().wait(on_lease_clock(deadline), std::move(stop), error);
  }

 private:
  friend Lock;
  acquiring() = default;

  Lock& self() noexcept { return static_cast<Lock&>(*this); }
  std::optional<lease> checked(lease_clock::time_point until, std::stop_token stop) {
    std::error_code error;
    auto got = self().wait(until, std::move(stop), error);
    if (error) throw_failure(error);
    return got;
  }
};

}  // namespace sallyport::detail
