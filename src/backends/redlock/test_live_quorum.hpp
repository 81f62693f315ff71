#pragma once

#include "backends/redis/test_live_store.hpp"
#include "tests/kit/fault_proxy.hpp"
#include "tests/kit/redis_quorum.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What the live tests of this backend share: clients of a quorum of the kit, the network between
/// them, and questions about both.
namespace sallyport::redlock_live {

using namespace std::chrono_literals;
using kit::fault;
using kit::fault_proxy;
using kit::flow;
using kit::redis_quorum;
using redis_live::background;
using redis_live::becomes_lost;
using redis_live::error_of;
using redis_live::eventually;
using redis_live::lasting;
using redis_live::patience;
using redis_live::quick;
using redis_live::slack;
using redis_live::told;
using redis_live::waiter;

inline client open(const std::string& address, client_options options = quick()) {
  return client::open(address, std::move(options));
}

/// What a client found wrong with its nodes when it was opened.
inline std::string complaints_of(const client& store) {
  std::string all;
  for (const std::string& each : store.capabilities().caveats) {
    if (each.starts_with("When the client was opened: ")) all += each + '\n';
  }
  return all;
}

/// A client for which all nodes vote from the first bid on: a majority is enough to open one, and on
/// a busy machine the others may come later.
inline client open_to_all(const std::string& address, const client_options& options = quick()) {
  std::optional<client> store;
  const bool complete = eventually([&] {
    store.emplace(open(address, options));
    return complaints_of(*store).empty();
  });
  EXPECT_TRUE(complete) << complaints_of(*store);
  return *store;
}

inline std::string address_at(const std::vector<std::uint16_t>& ports,
                              std::string_view options = {}) {
  std::string all = "redlock://";
  for (const std::uint16_t port : ports) {
    if (port != ports.front()) all += ',';
    all += "127.0.0.1:" + std::to_string(port);
  }
  return all.append(options);
}

/// One client's own way to every node, to be hurt.
class network {
 public:
  explicit network(const redis_quorum& nodes) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      proxies_.push_back(std::make_unique<fault_proxy>(nodes[i].port()));
    }
  }

  [[nodiscard]] std::string address(std::string_view options = {}) const {
    std::vector<std::uint16_t> ports;
    for (const auto& each : proxies_) ports.push_back(each->port());
    return address_at(ports, options);
  }
  [[nodiscard]] std::size_t size() const noexcept { return proxies_.size(); }
  [[nodiscard]] fault_proxy& operator[](std::size_t node) { return *proxies_[node]; }
  /// Everything passes; connections with a hole in them are gone.
  void heal() {
    for (const auto& each : proxies_) {
      each->accept_connections();
      each->heal();
      each->close_all();
    }
  }

 private:
  std::vector<std::unique_ptr<fault_proxy>> proxies_;
};

/// Waits until every node that is awake knows of so many waiters.
inline testing::AssertionResult waiters_become(redis_quorum& nodes, const std::string& key,
                                               std::int64_t count) {
  std::string seen;
  const auto counted = [&] {
    bool all = true;
    seen.clear();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (!nodes[i].awake()) continue;
      const auto here = nodes[i].command({"ZCARD", key + "\1quorum-line"}).integer;
      seen += ' ' + std::to_string(here);
      all = all && here == count;
    }
    return all;
  };
  if (eventually(counted)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << key << " has" << seen << " waiters, not " << count;
}

/// Waits until nothing but counters and marks is on any node that is awake.
inline testing::AssertionResult nothing_is_left(redis_quorum& nodes, std::string_view prefix = {}) {
  std::vector<std::string> left;
  const auto clean = [&] {
    left = nodes.leftovers(prefix);
    return left.empty();
  };
  if (eventually(clean)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << left.size() << " keys are left, one is " << left.front();
}

inline std::string mark_of(const redis_quorum& nodes, std::size_t node) {
  return nodes[node].command({"GET", "\1quorum-member"}).text;
}

inline std::uint64_t counter_of(const redis_quorum& nodes, std::size_t node) {
  const std::string text = nodes[node].command({"GET", "\1quorum-fence"}).text;
  return text.empty() ? 0 : std::stoull(text);
}

/// Whether this node gives its vote to anybody.
inline bool votes(const redis_quorum& nodes, std::size_t node, const std::string& key) {
  return nodes[node].command({"EXISTS", key}).integer == 1;
}

}  // namespace sallyport::redlock_live
