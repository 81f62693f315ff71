#pragma once

#include "tests/contract/kit/waiting.hpp"
#include "tests/kit/fault_proxy.hpp"
#include "tests/kit/live_client.hpp"
#include "tests/kit/zookeeper_server.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <string>

/// What the live tests of this backend share.
namespace sallyport::zookeeper_live {

using namespace std::chrono_literals;
using contract::background;
using contract::eventually;
using contract::patience;
using contract::wait_until;
using kit::fault;
using kit::fault_proxy;
using kit::flow;
using kit::zookeeper_ensemble;
using live::becomes_lost;
using live::error_of;

inline client open(const std::string& address, const std::string& label = "test",
                   std::chrono::milliseconds store_patience = 20s) {
  client_options options;
  options.label = label;
  options.heartbeat = 200ms;
  options.request_timeout = 1s;
  options.store_patience = store_patience;
  return client::open(address, options);
}

/// The address of one server behind a proxy.
inline std::string through(const fault_proxy& network, const zookeeper_ensemble& servers,
                           const std::string& root) {
  return "zookeeper://127.0.0.1:" + std::to_string(network.port()) + root + "?" +
         servers.tick_option();
}

inline std::string to_all(const zookeeper_ensemble& servers, const std::string& root) {
  return servers.address() + root + "?" + servers.tick_option();
}

inline lock_options lasting(std::chrono::milliseconds length = 2s) {
  return {.lease_length = length, .local_turns = 1};
}

}  // namespace sallyport::zookeeper_live
