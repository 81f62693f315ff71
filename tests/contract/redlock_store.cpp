#include "tests/contract/kit/store_under_test.hpp"
#include "tests/kit/redis_quorum.hpp"
#include "tests/kit/waiting.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

// SALLYPORT_REDLOCK_SETUP says how many nodes there are and how a minority of them fares:
//   3  (default)
//   5
//   5-down      two are killed before the first test
//   5-hung      two stand still: connections are accepted, and nothing is answered
//   5-flapping  all the time one is killed and comes back, and another one stands still for a while
namespace sallyport::contract {
namespace {

using namespace std::chrono_literals;

/// Every test has a prefix of its own, and a quorum's nodes are initialised by prefix.
constexpr int most_stores = 400;

std::string prefix_of(int store) { return "contract-" + std::to_string(store) + ":"; }

/// One node at a time goes away and comes back, with all that it had said.
class flapping {
 public:
  explicit flapping(kit::redis_quorum& nodes) : nodes_(nodes), work_([this] { run(); }) {}
  ~flapping() {
    over_.store(true);
    work_.join();
  }
  flapping(const flapping&) = delete;
  flapping& operator=(const flapping&) = delete;

 private:
  void run() {
    for (std::size_t turn = 0; !over_.load(); ++turn) {
      kit::redis_server& killed = nodes_[turn % nodes_.size()];
      kit::redis_server& hung = nodes_[(turn + 2) % nodes_.size()];
      hung.pause();
      killed.kill();
      rest();
      killed.start();
      hung.resume();
      rest();
    }
  }
  void rest() {
    static_cast<void>(kit::eventually([this] { return over_.load(); }, 300ms));
  }

  kit::redis_quorum& nodes_;
  std::atomic<bool> over_{false};
  std::thread work_;
};

struct setup {
  std::unique_ptr<kit::redis_quorum> nodes;
  std::unique_ptr<flapping> trouble;
  bool all_awake = true;
};

setup chosen() {
  const char* const found =
      std::getenv("SALLYPORT_REDLOCK_SETUP");  // NOLINT(concurrency-mt-unsafe)
  const std::string_view name = found == nullptr ? "3" : found;
  if (name != "3" && name != "5" && name != "5-down" && name != "5-hung" && name != "5-flapping") {
    throw std::invalid_argument(
        "SALLYPORT_REDLOCK_SETUP is 3, 5, 5-down, 5-hung or 5-flapping, not '" + std::string(name) +
        "'");
  }
  const bool flaps = name == "5-flapping";
  setup made{.nodes = std::make_unique<kit::redis_quorum>(
                 name == "3" ? 3 : 5,
                 kit::redis_options{.persistence = flaps ? kit::redis_persistence::append_always
                                                         : kit::redis_persistence::none}),
             .trouble = nullptr};
  for (int i = 1; i <= most_stores; ++i) made.nodes->initialise(prefix_of(i));
  for (const std::size_t node : {1U, 3U}) {
    if (name == "5-down") (*made.nodes)[node].kill();
    if (name == "5-hung") (*made.nodes)[node].pause();
  }
  if (flaps) made.trouble = std::make_unique<flapping>(*made.nodes);
  made.all_awake = !flaps;
  return made;
}

/// The same nodes for all tests of a process.
const setup& the_setup() {
  static const setup running = chosen();
  return running;
}

class prefix_store final : public fresh_store {
 public:
  prefix_store() {
    static std::atomic<int> made{0};
    const int number = ++made;
    if (number > most_stores) throw std::out_of_range("too few stores were initialised");
    prefix_ = prefix_of(number);
  }
  /// What dead clients left goes with their leases and tickets; then nothing may be there.
  ~prefix_store() override {
    if (!the_setup().all_awake) return;  // nodes come and go: there is no moment to look
    std::vector<std::string> left;
    const bool clean = kit::eventually([&] {
      left = the_setup().nodes->leftovers(prefix_);
      return left.empty();
    });
    EXPECT_TRUE(clean) << left.size() << " keys are left, one is " << left.front();
  }
  prefix_store(const prefix_store&) = delete;
  prefix_store& operator=(const prefix_store&) = delete;
  [[nodiscard]] std::string address() const override {
    return the_setup().nodes->address() + "?prefix=" + prefix_;
  }

 private:
  std::string prefix_;
};

}  // namespace

const store_under_test& the_store() {
  static const store_under_test redlock{
      .name = "redlock",
      .make = []() -> std::unique_ptr<fresh_store> { return std::make_unique<prefix_store>(); },
      .claims = {.fencing = true,
                 .fifo = false,
                 .direct_handoff = true,
                 .shared_locks = false,
                 .semaphores = false,
                 .elections = false,
                 .notices_death = false,
                 .tells_kind = false,
                 .survives_store_restart = the_setup().trouble != nullptr,
                 .min_lease = std::chrono::milliseconds{100},
                 .max_lease = std::chrono::seconds{60},
                 .lease_granularity = {},
                 .expiry_granularity = std::chrono::milliseconds{2},
                 .store_id = {},
                 .caveats = {}},
      .short_lease = std::chrono::milliseconds{500},
      .clients_share = true,
      .processes_share = true,
      .unreachable_address = "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
  };
  return redlock;
}

}  // namespace sallyport::contract
