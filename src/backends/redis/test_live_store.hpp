#pragma once

#include "tests/contract/kit/waiting.hpp"
#include "tests/kit/live_client.hpp"
#include "tests/kit/redis_commands.hpp"
#include "tests/kit/redis_leftovers.hpp"
#include "tests/kit/redis_server.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// What the live tests of this backend share: clients of a server of the kit, and questions about
/// both.
namespace sallyport::redis_live {

using namespace std::chrono_literals;
using contract::background;
using contract::eventually;
using contract::patience;
using contract::slack;
using kit::redis_server;
using live::becomes_lost;
using live::ending;
using live::error_of;
using live::lasting;
using live::quick;
using live::told;
using live::waiter;

inline std::string address_at(std::uint16_t port, std::string_view options = {}) {
  return "redis://127.0.0.1:" + std::to_string(port) + std::string(options);
}

inline client open(std::uint16_t port, client_options options = quick()) {
  return client::open(address_at(port), std::move(options));
}

/// Waits until so many contenders stand in the store's queue, as somebody from outside sees it.
inline testing::AssertionResult waiters_become(const redis_server& server, const std::string& name,
                                               std::int64_t count) {
  std::int64_t seen = -1;
  const auto counted = [&] {
    seen = server.command({"ZCARD", name + "\1queue"}).integer;
    return seen == count;
  };
  if (eventually(counted)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << name << " has " << seen << " waiters, not " << count;
}

/// Waits until nothing but counters of tokens is on the server.
inline testing::AssertionResult nothing_is_left(const redis_server& server) {
  std::vector<std::string> left;
  const auto clean = [&] {
    auto probe = server.probe();
    left = kit::leftovers(probe);
    return left.empty();
  };
  if (eventually(clean)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << left.size() << " keys are left, one is " << left.front();
}

/// How often a command was called; also scripts call commands.
inline std::uint64_t calls_of(const redis_server& server, const std::string& command) {
  auto probe = server.probe();
  return kit::calls_of(probe, command);
}

}  // namespace sallyport::redis_live
