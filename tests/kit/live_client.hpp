#pragma once

#include "tests/contract/kit/waiting.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

/// What tests of any backend do with clients of real servers.
namespace sallyport::live {

/// Time-outs and heartbeats that a test can wait for.
inline client_options quick(std::chrono::milliseconds request_timeout = std::chrono::milliseconds{
                                500}) {
  return {.label = "test",
          .request_timeout = request_timeout,
          .store_patience = std::chrono::seconds{20},
          .heartbeat = std::chrono::milliseconds{300}};
}

/// Passes through the store at every turn.
inline lock_options lasting(std::chrono::milliseconds length = std::chrono::seconds{60}) {
  return {.lease_length = length, .local_turns = 1};
}

/// Ends by itself.
inline lock_options ending(std::chrono::milliseconds length) {
  return {.lease_length = length, .renew = renewal::never, .local_turns = 1};
}

/// The error that `call` throws; code and text are empty when it throws none.
struct told {
  std::error_code code;
  std::string text;

  [[nodiscard]] bool says(std::string_view what) const {
    return text.find(what) != std::string::npos;
  }
};
template <class Call>
told error_of(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const lock_error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

inline testing::AssertionResult becomes_lost(const lease_view& view,
                                             lease_clock::duration within = contract::patience) {
  const auto lost = [&] { return view.state() == lease_state::lost; };
  if (contract::eventually(lost, within)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the lease is " << to_string(view.state());
}

/// A waiter on a thread of its own; the destructor cancels it.
class waiter {
 public:
  explicit waiter(mutex& lock)
      : work_([&lock, stop = stop_.get_token()] { return lock.acquire(stop); }) {}
  waiter(waiter&&) = default;
  waiter& operator=(waiter&&) = delete;
  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;
  ~waiter() { stop_.request_stop(); }

  [[nodiscard]] bool done() const { return work_.done(); }
  void cancel() { stop_.request_stop(); }
  /// What it got; nothing when it was cancelled, or got nothing in time. Call once.
  [[nodiscard]] std::optional<lease> get() {
    if (!contract::eventually([this] { return done(); })) cancel();
    return work_.get();
  }

 private:
  std::stop_source stop_;
  contract::background<std::optional<lease>> work_;
};

}  // namespace sallyport::live
