#pragma once

#include "tests/contract/kit/waiting.hpp"
#include "tests/kit/etcd_server.hpp"
#include "tests/kit/fault_proxy.hpp"
#include "tests/kit/live_client.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
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
using live::becomes_lost;
using live::error_of;
using live::lasting;
using live::waiter;

inline std::string address_at(std::uint16_t port, std::string_view options = {}) {
  return "etcd://127.0.0.1:" + std::to_string(port) + std::string(options);
}

/// A member that joins an election may take a while.
inline client_options quick() { return live::quick(1s); }

inline client open(const std::string& address, client_options options = quick()) {
  return client::open(address, std::move(options));
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

}  // namespace sallyport::etcd_live
