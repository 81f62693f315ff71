#include "base/check.hpp"

#include <gtest/gtest.h>

namespace sallyport::base {
namespace {

TEST(Check, LetsATrueConditionPassAndEvaluatesItOnce) {
  int evaluations = 0;

  SALLYPORT_CHECK(++evaluations == 1);

  EXPECT_EQ(evaluations, 1);
}

TEST(CheckDeathTest, AbortsAndNamesTheConditionAndItsPlace) {
  const int held = 2;

  EXPECT_DEATH(SALLYPORT_CHECK(held == 1), "broken invariant `held == 1` at .*check_test\\.cpp:");
}

TEST(Check, IsOneStatementAfterAnIfWithoutBraces) {
  bool reached_else = false;

  if (reached_else)
    SALLYPORT_CHECK(false);
  else
    reached_else = true;

  EXPECT_TRUE(reached_else);
}

}  // namespace
}  // namespace sallyport::base
