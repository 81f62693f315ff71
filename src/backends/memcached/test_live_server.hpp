#pragma once

#include "tests/contract/kit/waiting.hpp"
#include "tests/kit/live_client.hpp"
#include "tests/kit/memcached_server.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// What the live tests of this backend share.
namespace sallyport::memcached_live {

using namespace std::chrono_literals;
using contract::background;
using contract::eventually;
using contract::patience;
using kit::memcached_server;
using live::becomes_lost;
using live::ending;
using live::error_of;
using live::lasting;
using live::quick;
using live::told;
using live::waiter;

inline std::string address_at(std::uint16_t port, std::string_view options = {}) {
  return "memcached://127.0.0.1:" + std::to_string(port) + std::string(options);
}

inline client open(std::uint16_t port, client_options options = quick()) {
  return client::open(address_at(port), std::move(options));
}

inline testing::AssertionResult holds(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
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

}  // namespace sallyport::memcached_live
