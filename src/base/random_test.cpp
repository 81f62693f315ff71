#include "base/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace sallyport::base {
namespace {

static_assert(std::uniform_random_bit_generator<random>);

std::vector<std::uint64_t> draws(std::uint64_t seed, std::size_t count) {
  random source{seed};
  std::vector<std::uint64_t> drawn(count);
  std::generate(drawn.begin(), drawn.end(), [&source] { return source(); });
  return drawn;
}

// Seeds of found failures are kept for ever, so a seed must mean the same on every machine and in
// every version.
TEST(Random, GivesTheSequenceOfTheReferenceImplementation) {
  const std::vector<std::uint64_t> expected{0x99ec5f36cb75f2b4U, 0xbf6e1f784956452aU,
                                            0x1a5f849d4933e6e0U};

  EXPECT_EQ(draws(0, 3), expected);
}

TEST(Random, RepeatsItselfForOneSeedAndDiffersForAnother) {
  EXPECT_EQ(draws(7, 100), draws(7, 100));
  EXPECT_NE(draws(7, 100), draws(8, 100));
}

TEST(Random, StaysBelowItsBoundAndReachesEveryValue) {
  random source{1};
  std::array<int, 5> hits{};

  for (int draw = 0; draw < 10'000; ++draw) {
    const std::uint64_t value = source.below(hits.size());
    ASSERT_LT(value, hits.size());
    ++hits[value];
  }

  for (const int count : hits) EXPECT_NEAR(count, 2'000, 200);
}

TEST(Random, HasOnlyZeroBelowOne) {
  random source{2};

  for (int draw = 0; draw < 100; ++draw) EXPECT_EQ(source.below(1), 0U);
}

TEST(Random, MapsTheWholeRangeBelowTheLargestBound) {
  random source{3};
  random twin{3};

  // The high half of value * (2^64 - 1) is value - 1 (or 0): nothing may overflow on the way.
  for (int draw = 0; draw < 100; ++draw) {
    const std::uint64_t value = twin();
    EXPECT_EQ(source.below(random::max()), value == 0 ? 0 : value - 1);
  }
}

TEST(RandomDeathTest, RefusesAnEmptyRange) {
  random source{4};

  EXPECT_DEATH(source.below(0), "broken invariant");
}

TEST(Random, DrawsUnitsBetweenZeroAndOneEvenly) {
  random source{5};
  double sum = 0;

  for (int draw = 0; draw < 10'000; ++draw) {
    const double value = source.unit();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }

  EXPECT_NEAR(sum / 10'000, 0.5, 0.02);
}

TEST(Random, TakesChancesAtTheGivenRate) {
  random source{6};
  int never = 0;
  int sometimes = 0;
  int always = 0;

  for (int draw = 0; draw < 10'000; ++draw) {
    never += source.chance(0.0) ? 1 : 0;
    sometimes += source.chance(0.25) ? 1 : 0;
    always += source.chance(1.0) ? 1 : 0;
  }

  EXPECT_EQ(never, 0);
  EXPECT_NEAR(sometimes, 2'500, 250);
  EXPECT_EQ(always, 10'000);
}

TEST(KernelRandom, FillsEveryByteOfALongBuffer) {
  std::array<std::byte, 1'024> bytes{};

  fill_from_kernel(bytes);

  // 1,024 random bytes hold about four zeros; forty would mean a part that was never written.
  EXPECT_LT(std::count(bytes.begin(), bytes.end(), std::byte{0}), 40);
}

TEST(KernelRandom, AcceptsAnEmptyBuffer) { fill_from_kernel({}); }

TEST(KernelRandom, SeedsDiffer) {
  std::set<std::uint64_t> seeds;

  for (int draw = 0; draw < 100; ++draw) seeds.insert(kernel_seed());

  EXPECT_EQ(seeds.size(), 100U);
}

}  // namespace
}  // namespace sallyport::base
