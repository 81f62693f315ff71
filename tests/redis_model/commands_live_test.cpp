#include "base/random.hpp"
#include "tests/redis_model/random_commands.hpp"
#include "tests/redis_model/redis_pair.hpp"
#include "tests/redis_model/seeds.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace sallyport::redis_model {
namespace {

constexpr int commands_a_seed = 4000;
constexpr int commands_between_looks = 250;
constexpr std::uint64_t usual_seeds = 8;

void change_subscriptions(redis_pair& both, base::random& luck) {
  const std::string channel = luck.chance(0.5) ? "news" : "other";
  const bool sharded = luck.chance(0.3);
  if (both.subscribed(channel, sharded)) {
    both.unsubscribe(channel, sharded);
  } else {
    both.subscribe(channel, sharded);
  }
}

bool run_seed(redis_pair& both, std::uint64_t seed) {
  base::random luck(seed);
  random_commands make(luck);
  both.reset();
  for (int i = 0; i < commands_a_seed; ++i) {
    if (luck.chance(0.3)) both.move_clock(make.step());
    if (luck.chance(0.01)) change_subscriptions(both, luck);
    const auto made = make.next();
    if (!both.execute(made.text, made.how).has_value()) return false;
    if (i % commands_between_looks == 0 && !both.compare_keys()) return false;
  }
  return both.compare_keys();
}

TEST(MemoryRedisCommands, AnswerLikeARealServer) {
  redis_pair both;
  for (std::uint64_t seed = 1; seed <= seeds(usual_seeds); ++seed) {
    ASSERT_TRUE(run_seed(both, seed))
        << "seed " << seed << ": " << both.difference() << "\nbefore:\n"
        << both.trace();
  }
}

}  // namespace
}  // namespace sallyport::redis_model
