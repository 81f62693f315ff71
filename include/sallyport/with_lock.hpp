#pragma once

#include <sallyport/error.hpp>
#include <sallyport/lease.hpp>

#include <functional>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace sallyport {

/// Runs `job(std::stop_token)` under the lock and returns what it returns. The token fires when the
/// lease is lost: a long job looks at it and stops. If the lease was lost before the job ended,
/// throws lock_error (lease_lost) after the job has returned: its work may have overlapped with
/// another holder's.
template <class Lock, class Job>
auto with_lock(Lock& lock, Job&& job) -> std::invoke_result_t<Job, std::stop_token> {
  lease held = lock.acquire();
  const auto settle = [&held] {
    if (!held.valid() || held.release() == release_result::already_lost) {
      throw lock_error(
          make_error_code(errc::lease_lost),
          "with_lock: the lease on '" + held.name().text() + "' was lost while the job ran");
    }
  };
  if constexpr (std::is_void_v<std::invoke_result_t<Job, std::stop_token>>) {
    std::invoke(std::forward<Job>(job), held.lost());
    settle();
  } else {
    auto outcome = std::invoke(std::forward<Job>(job), held.lost());
    settle();
    return outcome;
  }
}

}  // namespace sallyport
