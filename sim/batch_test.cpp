#include "sim/world.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>

namespace sallyport::sim {
namespace {

/// Enough that every fault strikes, and few enough for a debug build.
constexpr std::uint64_t batch_seeds = 600;
/// Those on redlock, etcd and ZooKeeper go on to here: few seeds are, and their faults are many.
constexpr std::uint64_t last_seed = 1000;

bool has_many_faults(std::uint64_t seed) {
  const std::string_view store = store_of(seed);
  return store == "redlock" || store == "etcd" || store == "zookeeper";
}

// An idle simulation finds nothing: every fault must have struck, everything that the library can
// do must have been done, and the checker of exclusion must have seen overlaps where they are not
// excluded.
TEST(Batch, HoldsEveryPromiseWhileEverythingHappens) {
  counters total;
  for (std::uint64_t seed = 1; seed <= last_seed; ++seed) {
    if (seed > batch_seeds && !has_many_faults(seed)) continue;
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
