#include "sim/world.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace sallyport::sim {
namespace {

constexpr std::uint64_t smoke_seeds = 200;
constexpr std::uint64_t first_seed = 100'001;

// Short enough for builds with sanitizers.
TEST(Smoke, HoldsEveryPromise) {
  for (std::uint64_t seed = first_seed; seed < first_seed + smoke_seeds; ++seed) {
    const outcome ended = simulate(seed);
    ASSERT_FALSE(ended.failed) << "seed " << seed << ": " << ended.failed->check << ": "
                               << ended.failed->what;
  }
}

}  // namespace
}  // namespace sallyport::sim
