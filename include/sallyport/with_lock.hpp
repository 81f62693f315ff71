#pragma once

#include <sallyport/acquiring.hpp>
#include <sallyport/error.hpp>
#include <sallyport/lease.hpp>
#include <sallyport/lease_clock.hpp>

#include <chrono>
#include <concepts>
#include <functional>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace sallyport {

namespace detail {

template <class Job>
using result_of_job = std::invoke_result_t<Job, std::stop_token>;

/// What runs under a lock. It returns no reference: what that would refer to is used when the lock has
/// been given back. Return a value, or a pointer or std::ref if that is meant.
template <class Job>
concept job = std::invocable<Job, std::stop_token> && !std::is_reference_v<result_of_job<Job>>;

/// What a call returns that may not have run its job: an optional of the job's result, empty if it
/// did not run; of a job that returns nothing, whether it ran.
template <class Job>
using result_if_run =
    std::conditional_t<std::is_void_v<result_of_job<Job>>, bool, std::optional<result_of_job<Job>>>;

template <class Job>
result_of_job<Job> run_under(lease held, Job&& job) {
  const auto settle = [&held] {
    if (!held.valid() || held.release() == release_result::already_lost) {
      throw lock_error(
          make_error_code(errc::lease_lost),
          "with_lock: the lease on '" + held.name().text() + "' was lost while the job ran");
    }
  };
  if constexpr (std::is_void_v<result_of_job<Job>>) {
    std::invoke(std::forward<Job>(job), held.lost());
    settle();
  } else {
    auto outcome = std::invoke(std::forward<Job>(job), held.lost());
    settle();
    return outcome;
  }
}

template <class Job>
result_if_run<Job> run_if_held(std::optional<lease> held, Job&& job) {
  if (!held) return {};
  if constexpr (std::is_void_v<result_of_job<Job>>) {
    run_under(std::move(*held), std::forward<Job>(job));
    return true;
  } else {
    return run_under(std::move(*held), std::forward<Job>(job));
  }
}

}  // namespace detail

/// Runs `job(std::stop_token)` under the lock and returns what it returns, which is no reference. The token fires when the
/// lease is lost: a long job looks at it and stops. If the lease was lost before the job ended,
/// throws lock_error (lease_lost) after the job has returned: its work may have overlapped with
/// another holder's.
///
/// `lock` is anything with the calls of a mutex: mutex, recursive_mutex, shared_mutex, its readers(),
/// semaphore, and a candidate of an election: with_lock(leader.candidate("http://one:80"), job).
template <class Lock, detail::job Job>
auto with_lock(Lock&& lock, Job&& job) -> detail::result_of_job<Job> {
  return detail::run_under(lock.acquire(), std::forward<Job>(job));
}

/// The same for those who do not wait for ever. When the lock was not had (`stop` was requested, the
/// time is up, somebody else has it) the job does not run, and the result is an empty optional, or
/// false for a job that returns nothing. `stop` ends the wait, not the job: a job that is to hear of
/// it captures it.
template <class Lock, detail::job Job>
[[nodiscard]] auto with_lock(Lock&& lock, std::stop_token stop, Job&& job)
    -> detail::result_if_run<Job> {
  return detail::run_if_held(lock.acquire(std::move(stop)), std::forward<Job>(job));
}
/// One try, no queue.
template <class Lock, detail::job Job>
[[nodiscard]] auto try_with_lock(Lock&& lock, Job&& job) -> detail::result_if_run<Job> {
  return detail::run_if_held(lock.try_acquire(), std::forward<Job>(job));
}
/// The deadline is for the wait alone.
template <class Lock, class Rep, class Period, detail::job Job>
[[nodiscard]] auto try_with_lock_for(Lock&& lock, const std::chrono::duration<Rep, Period>& wait,
                                     std::stop_token stop, Job&& job)
    -> detail::result_if_run<Job> {
  return detail::run_if_held(lock.try_acquire_for(wait, std::move(stop)), std::forward<Job>(job));
}
template <class Lock, class Rep, class Period, detail::job Job>
[[nodiscard]] auto try_with_lock_for(Lock&& lock, const std::chrono::duration<Rep, Period>& wait,
                                     Job&& job) -> detail::result_if_run<Job> {
  return detail::run_if_held(lock.try_acquire_for(wait), std::forward<Job>(job));
}
template <class Lock, class Clock, class Duration, detail::job Job>
[[nodiscard]] auto try_with_lock_until(Lock&& lock,
                                       const std::chrono::time_point<Clock, Duration>& deadline,
                                       std::stop_token stop, Job&& job)
    -> detail::result_if_run<Job> {
  return detail::run_if_held(lock.try_acquire_until(deadline, std::move(stop)),
                             std::forward<Job>(job));
}
template <class Lock, class Clock, class Duration, detail::job Job>
[[nodiscard]] auto try_with_lock_until(Lock&& lock,
                                       const std::chrono::time_point<Clock, Duration>& deadline,
                                       Job&& job) -> detail::result_if_run<Job> {
  return detail::run_if_held(lock.try_acquire_until(deadline), std::forward<Job>(job));
}

}  // namespace sallyport
