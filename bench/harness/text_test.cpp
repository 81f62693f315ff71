#include "bench/harness/text.hpp"

#include "bench/harness/machine.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace sallyport::bench {
namespace {

TEST(Number, HasThreeDigitsThatCount) {
  EXPECT_EQ(number(0.042137), "0.0421");
  EXPECT_EQ(number(3.14159), "3.14");
  EXPECT_EQ(number(27.18), "27.2");
  EXPECT_EQ(number(-2.5), "-2.5");
  EXPECT_EQ(number(4), "4");
  EXPECT_EQ(number(0), "0");
}

TEST(Number, SetsThousandsApart) {
  EXPECT_EQ(number(999.6), "1,000");
  EXPECT_EQ(number(1024), "1,024");
  EXPECT_EQ(number(-1234567), "-1,234,567");
  EXPECT_EQ(number(-100), "-100");
}

TEST(Number, ThatIsNoneIsADash) {
  EXPECT_EQ(number(std::numeric_limits<double>::quiet_NaN()), "-");
  EXPECT_EQ(number(std::numeric_limits<double>::infinity()), "-");
}

TEST(Columns, CountCodePoints) {
  EXPECT_EQ(columns("abc"), 3U);
  EXPECT_EQ(columns("×µ"), 2U);
}

TEST(CpuTicks, AreReadFromTheFirstLine) {
  const auto ticks = parse_cpu_ticks(
      "cpu  100 1 20 700 30 4 5 40 9 9\n"
      "cpu0 50 0 10 350 15 2 2 20 0 0\n");

  EXPECT_EQ(ticks, (cpu_ticks{.all = 900, .busy = 130, .stolen = 40}));
}

TEST(CpuTicks, ThatCannotBeUnderstoodAreZero) {
  EXPECT_EQ(parse_cpu_ticks(""), cpu_ticks{});
  EXPECT_EQ(parse_cpu_ticks("intr 1 2 3"), cpu_ticks{});
  EXPECT_EQ(parse_cpu_ticks("cpu 1 2 three"), cpu_ticks{});
}

}  // namespace
}  // namespace sallyport::bench
