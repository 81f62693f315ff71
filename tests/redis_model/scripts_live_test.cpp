#include "base/random.hpp"
#include "tests/redis_model/others.hpp"
#include "tests/redis_model/random_locks.hpp"
#include "tests/redis_model/random_votes.hpp"
#include "tests/redis_model/redis_pair.hpp"
#include "tests/redis_model/seeds.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace sallyport::redis_model {
namespace {

constexpr int requests_a_seed = 1500;
constexpr int requests_between_looks = 50;
constexpr std::uint64_t usual_seeds = 8;

/// False: the two differ, or a script failed and nobody had done damage.
template <class Maker>
bool ask(redis_pair& both, Maker& make, bool damaged) {
  const auto call = make.next();
  const auto how = call.script->name == "who" ? Maker::order_of_who() : order::exact;
  auto answer = both.execute(words_of(call, false), how);
  if (answer.has_value() && answer->error_word() == "NOSCRIPT") {
    answer = both.execute(words_of(call, true), how);
  }
  if (!answer.has_value()) return false;
  make.learn(*answer);
  if (!damaged && answer->is_error()) {
    ADD_FAILURE() << call.script->name << ": " << answer->text;
    return false;
  }
  return true;
}

template <class Maker>
void change_subscriptions(redis_pair& both, Maker& make, bool sharded, bool mostly_on) {
  const auto channel = make.channel();
  if (both.subscribed(channel, sharded)) {
    if (!mostly_on) both.unsubscribe(channel, sharded);
  } else {
    both.subscribe(channel, sharded);
  }
}

template <class Maker>
bool run_seed(redis_pair& both, std::uint64_t seed) {
  base::random luck(seed);
  const bool cluster = luck.chance(0.3);
  // By seed everybody who waits is heard, or some, or hardly anybody; and there are others, or not.
  const double listening = luck.unit();
  const auto others = luck.below(3);  // none, foreign clients, vandals
  Maker make(luck, cluster);
  both.reset();
  for (int i = 0; i < requests_a_seed; ++i) {
    if (luck.chance(0.3)) both.move_clock(clock_step(luck));
    if (luck.chance(0.05)) change_subscriptions(both, make, cluster, luck.chance(listening));
    if (others > 0 && luck.chance(0.04)) {
      const auto done = others == 1 ? make.foreign_use() : make.damage();
      if (!both.execute(done).has_value()) return false;
    }
    if (!ask(both, make, others == 2)) return false;
    if (i % requests_between_looks == 0 && !both.compare_keys()) return false;
  }
  return both.compare_keys();
}

template <class Maker>
void run_seeds() {
  redis_pair both;
  for (std::uint64_t seed = 1; seed <= seeds(usual_seeds); ++seed) {
    ASSERT_TRUE(run_seed<Maker>(both, seed))
        << "seed " << seed << ": " << both.difference() << "\nbefore:\n"
        << both.trace();
  }
}

TEST(MemoryRedisScripts, AnswerLikeOnARealServer) { run_seeds<random_locks>(); }

TEST(MemoryRedisScripts, OfANodeOfAQuorumAnswerLikeOnARealServer) { run_seeds<random_votes>(); }

}  // namespace
}  // namespace sallyport::redis_model
