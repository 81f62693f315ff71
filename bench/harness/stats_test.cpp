#include "bench/harness/stats.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

namespace sallyport::bench {
namespace {

using testing::ElementsAre;

TEST(Summary, OfAnOddNumberOfRoundsIsItsMiddle) {
  const std::vector<double> rounds{9, 1, 4};

  EXPECT_EQ(summarise(rounds), (summary{.median = 4, .smallest = 1, .largest = 9}));
}

TEST(Summary, OfAnEvenNumberOfRoundsIsTheMeanOfItsMiddle) {
  const std::vector<double> rounds{8, 1, 3, 100};

  EXPECT_EQ(summarise(rounds), (summary{.median = 5.5, .smallest = 1, .largest = 100}));
}

TEST(Summary, OfOneRoundIsThatRound) {
  const std::vector<double> rounds{2};

  EXPECT_EQ(summarise(rounds), (summary{.median = 2, .smallest = 2, .largest = 2}));
}

TEST(Summary, OfNothingIsRefused) {
  EXPECT_THROW(static_cast<void>(summarise({})), std::invalid_argument);
}

TEST(Ratios, AreTakenRoundByRound) {
  const std::vector<double> slow{10, 40};
  const std::vector<double> limit{5, 10};

  EXPECT_THAT(ratios(slow, limit), ElementsAre(2, 4));
}

TEST(Ratios, OfRoundsThatDoNotMatchAreRefused) {
  const std::vector<double> two{1, 2};
  const std::vector<double> one{1};
  const std::vector<double> zeros{0, 0};

  EXPECT_THROW(static_cast<void>(ratios(two, one)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(ratios(two, zeros)), std::invalid_argument);
}

TEST(Percentile, IsTheNearestRank) {
  std::vector<std::int64_t> values(100);
  std::iota(values.rbegin(), values.rend(), 1);

  EXPECT_EQ(percentile(values, 0.5), 50);
  EXPECT_EQ(percentile(values, 0.99), 99);
  EXPECT_EQ(percentile(values, 1), 100);
  EXPECT_EQ(percentile(values, 0.001), 1);
}

TEST(Percentile, OfOneValueIsThatValue) {
  std::vector<std::int64_t> values{7};

  EXPECT_EQ(percentile(values, 0.5), 7);
  EXPECT_EQ(percentile(values, 0.99), 7);
}

TEST(Percentile, RefusesWhatMakesNoSense) {
  std::vector<std::int64_t> none;
  std::vector<std::int64_t> one{1};

  EXPECT_THROW(static_cast<void>(percentile(none, 0.5)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(percentile(one, 0)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(percentile(one, 1.1)), std::invalid_argument);
}

TEST(Sampler, KeepsAllWhileThereIsRoom) {
  sampler some{4};

  for (const std::int64_t value : {5, 6, 7, 8}) some.add(value);

  EXPECT_THAT(some.kept(), ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(some.stride(), 1U);
}

TEST(Sampler, KeepsAnEvenSelectionOfALongStream) {
  sampler some{4};

  for (std::int64_t value = 0; value < 14; ++value) some.add(value);

  EXPECT_THAT(some.kept(), ElementsAre(0, 4, 8, 12));
  EXPECT_EQ(some.stride(), 4U);
}

TEST(Sampler, NeverKeepsMoreThanItsCapacity) {
  for (const std::size_t capacity : {2U, 3U, 5U, 8U}) {
    sampler some{capacity};
    for (std::int64_t value = 0; value < 1000; ++value) {
      some.add(value);

      ASSERT_LE(some.kept().size(), capacity);
    }
    for (std::size_t i = 0; i < some.kept().size(); ++i) {
      EXPECT_EQ(some.kept()[i], static_cast<std::int64_t>(i * some.stride()));
    }
  }
}

}  // namespace
}  // namespace sallyport::bench
