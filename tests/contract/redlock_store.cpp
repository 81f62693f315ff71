#include "tests/contract/kit/shared_server.hpp"
#include "tests/contract/kit/store_under_test.hpp"
#include "tests/kit/redis_quorum.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
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
  const std::string name =
      chosen_setup("SALLYPORT_REDLOCK_SETUP", {"3", "5", "5-down", "5-hung", "5-flapping"});
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

std::unique_ptr<fresh_store> make() {
  const int number = next_store_number();
  if (number > most_stores) throw std::out_of_range("too few stores were initialised");
  const std::string prefix = prefix_of(number);
  return std::make_unique<plain_store>(
      the_setup().nodes->address() + "?prefix=" + prefix,
      [prefix] {
        if (!the_setup().all_awake) return;  // nodes come and go: there is no moment to look
        expect_nothing_left("keys", [&] { return the_setup().nodes->leftovers(prefix); });
      },
      [prefix] { return the_setup().nodes->parts(prefix); });
}

capabilities claims() {
  capabilities all = all_claims();
  all.fifo = false;
  all.shared_locks = false;
  all.semaphores = false;
  all.elections = false;
  all.tells_kind = false;
  all.survives_store_restart = the_setup().trouble != nullptr;
  all.max_lease = std::chrono::seconds{60};
  all.expiry_granularity = std::chrono::milliseconds{2};
  return all;
}

/// They hang for a while: nodes that were killed would have to be given back their tokens.
std::optional<server_switch> the_switch() {
  if (the_setup().trouble || the_setup().nodes->size() != 3) return std::nullopt;
  const auto each = [](void (kit::redis_server::*what)()) {
    return [what] {
      for (std::size_t i = 0; i < the_setup().nodes->size(); ++i) {
        ((*the_setup().nodes)[i].*what)();
      }
    };
  };
  return server_switch{each(&kit::redis_server::pause), each(&kit::redis_server::resume)};
}

}  // namespace

const store_under_test& the_store() {
  static const store_under_test redlock{
      .name = "redlock",
      .make = &make,
      .claims = claims(),
      .short_lease = std::chrono::milliseconds{500},
      .clients_share = true,
      .processes_share = true,
      .unreachable_address = "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
      .server = the_switch(),
  };
  return redlock;
}

}  // namespace sallyport::contract
