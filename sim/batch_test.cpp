#include "sim/world.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace sallyport::sim {
namespace {

/// Enough that every fault strikes, and few enough for a debug build.
constexpr std::uint64_t batch_seeds = 400;
/// Those on redlock go on to here: a fifth of all seeds are, and their faults are many.
constexpr std::uint64_t last_redlock_seed = 1000;

// An idle simulation finds nothing: every fault must have struck, everything that the library can
// do must have been done, and the checker of exclusion must have seen overlaps where they are not
// excluded.
TEST(Batch, HoldsEveryPromiseWhileEverythingHappens) {
  counters total;
  for (std::uint64_t seed = 1; seed <= last_redlock_seed; ++seed) {
    if (seed > batch_seeds && store_of(seed) != "redlock") continue;
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
