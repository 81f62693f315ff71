#pragma once

#include <csignal>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

namespace sallyport::runtime {

/// Starts `body` as `place`. The library's threads leave signals to the program's own. An error:
/// the process may have no more threads, or no more memory; nothing happened.
template <class Body>
[[nodiscard]] std::error_code start_thread(std::thread& place, Body body) noexcept {
  sigset_t all{};
  sigset_t before{};
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::error_code problem;
  try {
    place = std::thread(std::move(body));
  } catch (const std::system_error& refused) {
    problem = refused.code();
  } catch (const std::bad_alloc&) {
    problem = std::make_error_code(std::errc::not_enough_memory);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return problem;
}

}  // namespace sallyport::runtime
