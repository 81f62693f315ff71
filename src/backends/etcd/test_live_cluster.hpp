#pragma once

#include "tests/contract/kit/waiting.hpp"
#include "tests/kit/etcd_server.hpp"
#include "tests/kit/fault_proxy.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// What the live tests of this backend share: clients of a cluster of the kit, and questions about
/// both.
namespace sallyport::etcd_live {

using namespace std::chrono_literals;
using contract::background;
using contract::eventually;
using contract::patience;
using contract::slack;
using kit::etcd_cluster;
using kit::fault;
using kit::fault_proxy;
using kit::flow;

inline std::string address_at(std::uint16_t port, std::string_view options = {}) {
  return "etcd://127.0.0.1:" + std::to_string(port) + std::string(options);
}

/// Time-outs and heartbeats that a test can wait for.
inline client_options quick() {
  return {.label = "test", .request_timeout = 1s, .store_patience = 20s, .heartbeat = 300ms};
}

inline client open(const std::string& address, client_options options = quick()) {
  return client::open(address, std::move(options));
}

/// Passes through the store at every turn.
inline lock_options lasting(std::chrono::milliseconds length = 60s) {
  return {.lease_length = length, .local_turns = 1};
}

/// The error that `call` throws; empty when it throws none.
template <class Call>
std::error_code error_of(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const lock_error& error) {
    return error.code();
  }
  return {};
}

/// Waits until neither keys nor leases are there.
inline testing::AssertionResult nothing_is_left(etcd_cluster& cluster) {
  std::vector<std::string> left;
  std::size_t leases = 0;
  const auto clean = [&] {
    left = cluster.keys();
    leases = cluster.leases();
    return left.empty() && leases == 0;
  };
  // A kit_error means "not yet": members may be busy with an election.
  if (kit::eventually(clean)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << left.size() << " keys and " << leases << " leases are left"
                                     << (left.empty() ? "" : ", one is " + left.front());
}

inline testing::AssertionResult becomes_lost(const lease_view& view,
                                             lease_clock::duration within = patience) {
  const auto lost = [&] { return view.state() == lease_state::lost; };
  if (eventually(lost, within)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the lease is " << to_string(view.state());
}

/// Waits until so many contenders stand in the store's queue.
inline testing::AssertionResult waiters_become(const client& store, const std::string& name,
                                               std::size_t count) {
  const auto counted = [&] {
    const auto seen = store.who(name);
    return (seen ? seen->waiters.size() : 0) == count;
  };
  if (eventually(counted)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << name << " has not " << count << " waiters";
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

}  // namespace sallyport::etcd_live
