#include "sim/world.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace sallyport::sim {
namespace {

/// Enough that every fault strikes, and few enough for a debug build.
constexpr std::uint64_t batch_seeds = 400;

// An idle simulation finds nothing: every fault must have struck, everything that the library can
// do must have been done, and the checker of exclusion must have seen overlaps where they are not
// excluded.
TEST(Batch, HoldsEveryPromiseWhileEverythingHappens) {
  counters total;
  for (std::uint64_t seed = 1; seed <= batch_seeds; ++seed) {
    const outcome ended = simulate(seed);
    ASSERT_FALSE(ended.failed) << "seed " << seed << ": " << ended.failed->check << ": "
                               << ended.failed->what;
    total += ended.count;
  }

  for (std::size_t i = 0; i < counter_count; ++i) {
    EXPECT_GT(total.value[i], 0U) << counter_names[i] << " never happened";
  }
}

}  // namespace
}  // namespace sallyport::sim
