#include "bench/harness/bar.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace sallyport::bench {
namespace {

TEST(Bar, IsShownWithItsComparison) {
  EXPECT_EQ(to_string(bar{}), "");
  EXPECT_EQ(to_string(times_limit(4)), "<= 4 x limit");
  EXPECT_EQ(to_string(below(1024)), "< 1,024");
  EXPECT_EQ(to_string(at_most(1)), "<= 1");
  EXPECT_EQ(to_string(exactly(1)), "= 1");
}

TEST(Bar, BelowExcludesTheBarItself) {
  const std::vector<double> on_the_bar{5};

  EXPECT_EQ(judge(below(5), on_the_bar, {}), verdict::missed);
  EXPECT_EQ(judge(at_most(5), on_the_bar, {}), verdict::met);
  EXPECT_EQ(judge(exactly(5), on_the_bar, {}), verdict::met);
  EXPECT_EQ(judge(exactly(4), on_the_bar, {}), verdict::missed);
}

TEST(Bar, IsJudgedByTheMedianAndQualifiedByTheRounds) {
  EXPECT_EQ(judge(at_most(4), std::vector<double>{1, 2, 3}, {}), verdict::met);
  EXPECT_EQ(judge(at_most(4), std::vector<double>{1, 2, 9}, {}), verdict::mostly_met);
  EXPECT_EQ(judge(at_most(4), std::vector<double>{1, 8, 9}, {}), verdict::mostly_missed);
  EXPECT_EQ(judge(at_most(4), std::vector<double>{7, 8, 9}, {}), verdict::missed);
}

TEST(Bar, RelativeToTheLimitLooksAtTheRatios) {
  const std::vector<double> values{100, 100, 100};

  EXPECT_EQ(judge(times_limit(4), values, std::vector<double>{2, 3, 4}), verdict::met);
  EXPECT_EQ(judge(times_limit(4), values, std::vector<double>{5, 6, 7}), verdict::missed);
  EXPECT_THROW(static_cast<void>(judge(times_limit(4), values, {})), std::invalid_argument);
}

TEST(Bar, ThatIsNoneIsNotJudged) {
  EXPECT_EQ(judge(bar{}, std::vector<double>{1}, {}), verdict::none);
}

}  // namespace
}  // namespace sallyport::bench
