#include "tests/costs/cost.hpp"
#include "tests/costs/stores.hpp"
#include "tests/kit/live_client.hpp"
#include "tests/kit/redis_commands.hpp"
#include <sallyport/sallyport.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

namespace sallyport::costs {
namespace {

struct handoff_cost {
  double commands = std::numeric_limits<double>::max();
  double scripts = std::numeric_limits<double>::max();
  double calls = std::numeric_limits<double>::max();
};

/// Two clients that pass one lock to and fro: each stands in line while the other is inside.
class relay {
 public:
  explicit relay(const redis_store& store)
      : probe_(store.server().probe()),
        first_(client::open(store.address()), "door", {.local_turns = 1}),
        second_(client::open(store.address()), "door", {.local_turns = 1}),
        held_(first_.acquire()) {}

  /// What one turn of the client that is outside costs, from its asking on.
  handoff_cost pass_on() {
    const kit::command_counts before = kit::count_commands(probe_);
    std::uint64_t questions = 1;  // of this probe; the one before did not count itself
    live::waiter next{first_is_inside_ ? second_ : first_};
    EXPECT_TRUE(contract::eventually([&] {
      ++questions;
      return probe_.expect({"ZCARD", "door\1queue"}).integer == 1;
    }));
    held_->release();
    held_ = next.get();
    EXPECT_TRUE(held_);
    first_is_inside_ = !first_is_inside_;

    const kit::command_counts after = kit::count_commands(probe_);
    const std::uint64_t sent = after.of_clients - before.of_clients;
    return {.commands = static_cast<double>(sent),
            .scripts = static_cast<double>(after.scripts - before.scripts),
            .calls = static_cast<double>(after.all - before.all - questions - sent)};
  }

 private:
  kit::redis_probe probe_;
  mutex first_;
  mutex second_;
  bool first_is_inside_ = true;
  std::optional<lease> held_;
};

TEST(HandOff, OnRedisIsACommandToAskAndOneToGiveBack) {
  const redis_store store;
  relay lock{store};
  // The first ones open the ways for notices. A slow machine adds claims and heartbeats.
  for (int i = 0; i < 4; ++i) static_cast<void>(lock.pass_on());

  handoff_cost least;
  for (int i = 0; i < 20; ++i) {
    const handoff_cost each = lock.pass_on();
    least = {std::min(least.commands, each.commands), std::min(least.scripts, each.scripts),
             std::min(least.calls, each.calls)};
  }

  EXPECT_TRUE(keeps_to(handoff_commands, least.commands));
  EXPECT_TRUE(keeps_to(handoff_scripts, least.scripts));
  EXPECT_TRUE(keeps_to(handoff_calls, least.calls));
}

}  // namespace
}  // namespace sallyport::costs
