#include "sim/clock.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace sallyport::sim {
namespace {

using namespace std::chrono_literals;

constexpr time_point start{1000s};
constexpr true_time second = 1'000'000'000;

TEST(SimClock, RunsAtItsOwnRate) {
  const sim_clock fast{start, 5000};
  const sim_clock slow{start, -5000};

  EXPECT_EQ(fast.at(10 * second), start + 10050ms);
  EXPECT_EQ(slow.at(10 * second), start + 9950ms);
}

TEST(SimClock, FindsTheFirstMomentAtWhichItShowsATime) {
  for (const std::int64_t drift : {-100'000, -4999, -1, 0, 1, 3333, 100'000}) {
    const sim_clock clock{start, drift};
    for (const duration wanted :
         {duration{1}, duration{777}, duration{123'456'789}, duration{5s}}) {
      const true_time when = clock.when(start + wanted);

      EXPECT_GE(clock.at(when), start + wanted);
      EXPECT_LT(clock.at(when - 1), start + wanted);
    }
  }
}

TEST(SimClock, KeepsWhatItShowsWhenItsRateChanges) {
  sim_clock clock{start, 0};

  clock.set_drift(second, 100'000);

  EXPECT_EQ(clock.at(second), start + 1s);
  EXPECT_EQ(clock.at(2 * second), start + 2100ms);
}

TEST(SimClock, JumpsForwardAndBack) {
  sim_clock clock{start, 0};

  clock.jump(second, 5s);
  EXPECT_EQ(clock.at(second), start + 6s);

  clock.jump(2 * second, -3s);
  EXPECT_EQ(clock.at(2 * second), start + 4s);
}

TEST(SimClock, NeverShowsALaterTimeWhileItIsStopped) {
  sim_clock clock{start, 0};

  clock.stop(second);

  EXPECT_EQ(clock.at(100 * second), start + 1s);
  EXPECT_EQ(clock.when(start + 2s), never);

  clock.set_drift(100 * second, 0);
  EXPECT_EQ(clock.when(start + 2s), 101 * second);
}

}  // namespace
}  // namespace sallyport::sim
