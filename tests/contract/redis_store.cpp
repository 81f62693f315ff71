#include "tests/contract/kit/store_under_test.hpp"
#include "tests/kit/redis_leftovers.hpp"
#include "tests/kit/redis_server.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>

namespace sallyport::contract {
namespace {

using kit::redis_server;

/// One server for all tests of a process; each test has names of its own.
redis_server& server() {
  static redis_server running;
  return running;
}

/// Locks under a prefix. When the test is over, nothing may be left of them but the counter: what
/// dead clients left goes with their leases and tickets.
class prefix_store final : public fresh_store {
 public:
  prefix_store() {
    static std::atomic<int> made{0};
    prefix_ = "contract-" + std::to_string(++made) + ":";
  }
  ~prefix_store() override {
    std::vector<std::string> left;
    const bool clean = kit::eventually([&] {
      auto probe = server().probe();
      left = kit::leftovers(probe);
      std::erase_if(left, [&](const std::string& key) { return !key.starts_with(prefix_); });
      return left.empty();
    });
    EXPECT_TRUE(clean) << left.size() << " keys are left, one is " << left.front();
  }
  prefix_store(const prefix_store&) = delete;
  prefix_store& operator=(const prefix_store&) = delete;
  [[nodiscard]] std::string address() const override {
    return "redis://127.0.0.1:" + std::to_string(server().port()) + "?prefix=" + prefix_;
  }

 private:
  std::string prefix_;
};

}  // namespace

const store_under_test& the_store() {
  static const store_under_test redis{
      .name = "redis",
      .make = []() -> std::unique_ptr<fresh_store> { return std::make_unique<prefix_store>(); },
      .claims = {.fencing = true,
                 .fifo = true,
                 .direct_handoff = true,
                 .shared_locks = true,
                 .semaphores = true,
                 .elections = true,
                 .notices_death = false,
                 .tells_kind = true,
                 .survives_store_restart = false,
                 .min_lease = std::chrono::milliseconds{100},
                 .max_lease = std::chrono::hours{24},
                 .lease_granularity = {},
                 .expiry_granularity = std::chrono::milliseconds{2},
                 .store_id = {},
                 .caveats = {}},
      .short_lease = std::chrono::milliseconds{400},
      .clients_share = true,
      .processes_share = true,
      .unreachable_address = "redis://127.0.0.1:1",
  };
  return redis;
}

}  // namespace sallyport::contract
