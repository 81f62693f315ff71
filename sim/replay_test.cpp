#include "sim/world.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace sallyport::sim {
namespace {

/// Every line of seeds.txt is a seed and why it is remembered, or a comment.
std::vector<std::uint64_t> remembered_seeds() {
  std::vector<std::uint64_t> seeds;
  std::ifstream file{SALLYPORT_SIM_SEEDS_FILE};
  EXPECT_TRUE(file.is_open());
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words{line};
    std::uint64_t seed = 0;
    words >> seed;
    EXPECT_TRUE(words) << line;
    seeds.push_back(seed);
  }
  return seeds;
}

TEST(Replay, GivesTheSameTraceForTheSameSeed) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const outcome first = simulate(seed);
    const outcome second = simulate(seed);

    EXPECT_EQ(first.trace_hash, second.trace_hash) << "seed " << seed;
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
  }
}

TEST(Replay, GivesTheSameTraceWhetherSomebodyReadsItOrNot) {
  const outcome unseen = simulate(7);
  const outcome seen = simulate(7, tracing::keep);

  EXPECT_EQ(unseen.trace_hash, seen.trace_hash);
  EXPECT_FALSE(seen.lines.empty());
}

TEST(Replay, GivesOtherTracesForOtherSeeds) {
  EXPECT_NE(simulate(1).trace_hash, simulate(2).trace_hash);
}

TEST(Replay, PassesEverySeedThatFailedBefore) {
  const std::vector<std::uint64_t> seeds = remembered_seeds();
  ASSERT_FALSE(seeds.empty());
  for (const std::uint64_t seed : seeds) {
    const outcome ended = simulate(seed);
    EXPECT_FALSE(ended.failed) << "seed " << seed << ": " << ended.failed->check << ": "
                               << ended.failed->what;
  }
}

}  // namespace
}  // namespace sallyport::sim
