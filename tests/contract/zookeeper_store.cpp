#include "tests/contract/kit/store_under_test.hpp"
#include "tests/kit/waiting.hpp"
#include "tests/kit/zookeeper_server.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

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
  const char* const found =
      std::getenv("SALLYPORT_ZOOKEEPER_SETUP");  // NOLINT(concurrency-mt-unsafe)
  const std::string_view name = found == nullptr ? "1" : found;
  if (name != "1" && name != "3" && name != "auth" && name != "kazoo") {
    throw std::invalid_argument("SALLYPORT_ZOOKEEPER_SETUP is 1, 3, auth or kazoo, not '" +
                                std::string(name) + "'");
  }
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

/// Locks below a node of their own. When the test is over nothing may be left of them: what dead
/// clients left goes with their sessions, and the folders with the servers' sweep.
class rooted_store final : public fresh_store {
 public:
  rooted_store() {
    static std::atomic<int> made{0};
    root_ = "/contract-" + std::to_string(++made);
  }
  ~rooted_store() override {
    std::vector<std::string> left;
    const bool clean = kit::eventually([&] {
      left = the_setup().servers->ephemerals(root_);
      return left.empty();
    });
    EXPECT_TRUE(clean) << left.size() << " nodes are left, one is " << left.front();
    if (testing::Test::HasFailure()) std::cerr << the_setup().servers->log_tails();
  }
  rooted_store(const rooted_store&) = delete;
  rooted_store& operator=(const rooted_store&) = delete;
  [[nodiscard]] std::string address() const override {
    return the_setup().servers->address() + root_ + the_setup().options;
  }

 private:
  std::string root_;
};

}  // namespace

const store_under_test& the_store() {
  static const store_under_test zookeeper{
      .name = "zookeeper",
      .make = []() -> std::unique_ptr<fresh_store> { return std::make_unique<rooted_store>(); },
      .claims = {.fencing = true,
                 .fifo = true,
                 .direct_handoff = true,
                 .shared_locks = true,
                 .semaphores = !the_setup().kazoo,
                 .elections = true,
                 .notices_death = false,
                 .tells_kind = !the_setup().kazoo,
                 .survives_store_restart = true,
                 .min_lease = std::chrono::milliseconds{100},
                 .max_lease = std::chrono::hours{24},
                 .lease_granularity = {},
                 .expiry_granularity = {},
                 .store_id = {},
                 .caveats = {}},
      .short_lease = std::chrono::milliseconds{1000},
      .clients_share = true,
      .processes_share = true,
      .unreachable_address = "zookeeper://127.0.0.1:1",
  };
  return zookeeper;
}

}  // namespace sallyport::contract
