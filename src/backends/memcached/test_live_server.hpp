#pragma once

#include "tests/contract/kit/waiting.hpp"
#include "tests/kit/memcached_server.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

/// What the live tests of this backend share.
namespace sallyport::memcached_live {

using namespace std::chrono_literals;
using contract::background;
using contract::eventually;
using contract::patience;
using kit::memcached_server;

inline std::string address_at(std::uint16_t port, std::string_view options = {}) {
  return "memcached://127.0.0.1:" + std::to_string(port) + std::string(options);
}

/// Time-outs that a test can wait for.
inline client_options quick() {
  return {.label = "test", .request_timeout = 500ms, .store_patience = 20s, .heartbeat = 300ms};
}

inline client open(std::uint16_t port, client_options options = quick()) {
  return client::open(address_at(port), std::move(options));
}

/// Passes through the store at every turn.
inline lock_options lasting(std::chrono::milliseconds length = 60s) {
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

inline testing::AssertionResult holds(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

inline testing::AssertionResult becomes_lost(const lease_view& view,
                                             lease_clock::duration within = patience) {
  const auto lost = [&] { return view.state() == lease_state::lost; };
  if (eventually(lost, within)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the lease is " << to_string(view.state());
}

/// Waits until no item is on the server.
inline testing::AssertionResult nothing_is_left(const memcached_server& server) {
  std::vector<std::string> left;
  const auto clean = [&] {
    left = server.keys();
    return left.empty();
  };
  if (eventually(clean)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << left.size() << " items are left, one is " << left.front();
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
    if (!eventually([this] { return done(); })) cancel();
    return work_.get();
  }

 private:
  std::stop_source stop_;
  background<std::optional<lease>> work_;
};

}  // namespace sallyport::memcached_live
