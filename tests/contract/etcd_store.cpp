#include "tests/contract/kit/store_under_test.hpp"
#include "tests/kit/etcd_server.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

// SALLYPORT_ETCD_SETUP says what the cluster is like:
//   single        (default)
//   cluster       three members
//   cluster-down  three members, whose leader is killed before the first test
namespace sallyport::contract {
namespace {

std::unique_ptr<kit::etcd_cluster> chosen() {
  const char* const found = std::getenv("SALLYPORT_ETCD_SETUP");  // NOLINT(concurrency-mt-unsafe)
  const std::string_view name = found == nullptr ? "single" : found;
  if (name != "single" && name != "cluster" && name != "cluster-down") {
    throw std::invalid_argument("SALLYPORT_ETCD_SETUP is single, cluster or cluster-down, not '" +
                                std::string(name) + "'");
  }
  auto made = std::make_unique<kit::etcd_cluster>(
      kit::etcd_options{.members = name == "single" ? std::size_t{1} : 3});
  if (name == "cluster-down") made->kill(made->leader());
  return made;
}

/// The same cluster for all tests of a process.
kit::etcd_cluster& the_cluster() {
  static const std::unique_ptr<kit::etcd_cluster> running = chosen();
  return *running;
}

class prefix_store final : public fresh_store {
 public:
  prefix_store() {
    static std::atomic<int> made{0};
    prefix_ = "contract-" + std::to_string(++made) + "/";
  }
  /// What dead clients left goes with their leases; then nothing may be there.
  ~prefix_store() override {
    std::vector<std::string> left;
    const bool clean = kit::eventually([&] {
      left = the_cluster().keys(prefix_);
      return left.empty();
    });
    EXPECT_TRUE(clean) << left.size() << " keys are left, one is " << left.front();
  }
  prefix_store(const prefix_store&) = delete;
  prefix_store& operator=(const prefix_store&) = delete;
  [[nodiscard]] std::string address() const override {
    return the_cluster().address() + "?prefix=" + prefix_;
  }

 private:
  std::string prefix_;
};

}  // namespace

const store_under_test& the_store() {
  static const store_under_test etcd{
      .name = "etcd",
      .make = []() -> std::unique_ptr<fresh_store> { return std::make_unique<prefix_store>(); },
      .claims = {.fencing = true,
                 .fifo = true,
                 .direct_handoff = true,
                 .shared_locks = true,
                 .semaphores = true,
                 .elections = true,
                 .notices_death = false,
                 .tells_kind = true,
                 .survives_store_restart = true,
                 .min_lease = std::chrono::seconds{2},
                 .max_lease = std::chrono::hours{24},
                 .lease_granularity = std::chrono::seconds{1},
                 .expiry_granularity = {},
                 .store_id = {},
                 .caveats = {}},
      .short_lease = std::chrono::seconds{2},
      .clients_share = true,
      .processes_share = true,
      .unreachable_address = "etcd://127.0.0.1:1",
  };
  return etcd;
}

}  // namespace sallyport::contract
