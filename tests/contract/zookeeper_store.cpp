#include "tests/contract/kit/shared_server.hpp"
#include "tests/contract/kit/store_under_test.hpp"
#include "tests/kit/zookeeper_server.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

// SALLYPORT_ZOOKEEPER_SETUP says how many servers there are and who asks:
//   1     (default) one server
//   3     an ensemble
//   auth  one server, and a user with a password, whose nodes are closed to others
//   kazoo one server, and nodes that look like kazoo's
namespace sallyport::contract {
namespace {

struct setup {
  std::unique_ptr<kit::zookeeper_ensemble> servers;
  std::string options;
  bool kazoo = false;
};

setup chosen() {
  const std::string name = chosen_setup("SALLYPORT_ZOOKEEPER_SETUP", {"1", "3", "auth", "kazoo"});
  setup made;
  made.servers = std::make_unique<kit::zookeeper_ensemble>(
      kit::zookeeper_options{.servers = name == "3" ? 3U : 1U});
  made.options = "?" + made.servers->tick_option();
  if (name == "auth") {
    ::setenv("SALLYPORT_TEST_PASSWORD", "of the locks", 1);  // NOLINT(concurrency-mt-unsafe)
    made.options += "&user=locks&password_env=SALLYPORT_TEST_PASSWORD";
  }
  made.kazoo = name == "kazoo";
  if (made.kazoo) made.options += "&dialect=kazoo";
  return made;
}

/// The same servers for all tests of a process.
const setup& the_setup() {
  static const setup running = chosen();
  return running;
}

/// Locks below a node of their own. Of them nothing may be left: what dead clients left goes with
/// their sessions, and the folders with the servers' sweep.
std::unique_ptr<fresh_store> make() {
  const std::string root = "/contract-" + std::to_string(next_store_number());
  return std::make_unique<plain_store>(
      the_setup().servers->address() + root + the_setup().options,
      [root] {
        expect_nothing_left("nodes", [&] { return the_setup().servers->ephemerals(root); });
        if (testing::Test::HasFailure()) std::cerr << the_setup().servers->log_tails();
      },
      [root] { return the_setup().servers->ephemerals(root).size(); });
}

capabilities claims() {
  capabilities all = all_claims();
  all.semaphores = !the_setup().kazoo;
  all.tells_kind = !the_setup().kazoo;
  return all;
}

/// Of an ensemble one server is not enough.
std::optional<server_switch> the_switch() {
  if (the_setup().servers->size() != 1) return std::nullopt;
  return server_switch{[] { the_setup().servers->kill(0); }, [] { the_setup().servers->start(0); }};
}

}  // namespace

const store_under_test& the_store() {
  static const store_under_test zookeeper{
      .name = "zookeeper",
      .make = &make,
      .claims = claims(),
      .short_lease = std::chrono::milliseconds{1000},
      .clients_share = true,
      .processes_share = true,
      .unreachable_address = "zookeeper://127.0.0.1:1",
      .server = the_switch(),
  };
  return zookeeper;
}

}  // namespace sallyport::contract
