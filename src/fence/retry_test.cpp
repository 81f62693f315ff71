#include "fence/retry.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <optional>
#include <vector>

namespace sallyport::fence {
namespace {

using namespace std::chrono_literals;

constexpr double nearly_one = 1 - std::numeric_limits<double>::epsilon();
constexpr lease_clock::time_point start{1000s};

std::chrono::milliseconds rounded(std::optional<lease_clock::duration> pause) {
  return std::chrono::round<std::chrono::milliseconds>(pause.value());
}

TEST(Retry, DoublesTheSpanUpToTheLongest) {
  retry tries{{start + 1h, 100, 10ms, 70ms}};

  constexpr int failures = 6;
  std::vector<std::chrono::milliseconds> spans;
  spans.reserve(failures);
  for (int i = 0; i < failures; ++i)
    spans.push_back(rounded(tries.after_failure(start, nearly_one)));

  EXPECT_EQ(spans, (std::vector{10ms, 20ms, 40ms, 70ms, 70ms, 70ms}));
}

TEST(Retry, DrawsThePauseEvenlyFromTheSpan) {
  for (const double draw : {0.0, 0.25, 0.5}) {
    retry tries{{start + 1h, 100, 16ms, 70ms}};
    EXPECT_EQ(rounded(tries.after_failure(start, draw)),
              (std::chrono::milliseconds{int(16 * draw)}));
  }
}

TEST(Retry, GivesUpAfterTheLastAttempt) {
  retry tries{{start + 1h, 3, 1ms, 1ms}};

  EXPECT_TRUE(tries.after_failure(start, 0));
  EXPECT_TRUE(tries.after_failure(start, 0));
  EXPECT_FALSE(tries.after_failure(start, 0));

  retry once{{start + 1h, 1, 1ms, 1ms}};
  EXPECT_FALSE(once.after_failure(start, 0));
}

TEST(Retry, GivesUpAtTheDeadlineAndDoesNotWaitInVain) {
  retry late{{start, 100, 0ms, 0ms}};
  EXPECT_FALSE(late.after_failure(start, 0));

  retry in_vain{{start + 10ms, 100, 40ms, 40ms}};
  EXPECT_FALSE(in_vain.after_failure(start, 0.5));

  retry just_in_time{{start + 10ms, 100, 40ms, 40ms}};
  EXPECT_EQ(rounded(just_in_time.after_failure(start, 0.25)), 10ms);
}

TEST(Retry, NeitherWaitsNorOverflowsWithExtremeLimits) {
  retry at_once{{start + 1h, std::numeric_limits<std::uint32_t>::max(), 0ms, 0ms}};
  retry for_ever{{lease_clock::time_point::max(), std::numeric_limits<std::uint32_t>::max(), 1ns,
                  lease_clock::duration::max()}};

  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(at_once.after_failure(start, nearly_one), 0ms);
    const auto pause = for_ever.after_failure(start, 0.5);
    EXPECT_TRUE(!pause || *pause >= 0ns);
  }
}

}  // namespace
}  // namespace sallyport::fence
