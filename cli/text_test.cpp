#include "cli/text.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

namespace sallyport::cli {
namespace {

using std::chrono::milliseconds;

TEST(Durations, AreReadWithUnitsAndAsSeconds) {
  EXPECT_EQ(parse_duration("2"), milliseconds{2000});
  EXPECT_EQ(parse_duration("0.5"), milliseconds{500});
  EXPECT_EQ(parse_duration(".5"), milliseconds{500});
  EXPECT_EQ(parse_duration("500ms"), milliseconds{500});
  EXPECT_EQ(parse_duration("30s"), milliseconds{30'000});
  EXPECT_EQ(parse_duration("1.5m"), milliseconds{90'000});
  EXPECT_EQ(parse_duration("2h"), milliseconds{7'200'000});
  EXPECT_EQ(parse_duration("1d"), milliseconds{86'400'000});
  EXPECT_EQ(parse_duration("0"), milliseconds{0});
}

TEST(Durations, AreRoundedUpwards) {
  EXPECT_EQ(parse_duration("0.4ms"), milliseconds{1});
  EXPECT_EQ(parse_duration("0.0001"), milliseconds{1});
  EXPECT_EQ(parse_duration("1.1"), milliseconds{1100});
}

TEST(Durations, AreRefusedWhenTheyAreNone) {
  for (const char* const each : {"", "-1", "+1", "x", "s", "ms", "1x", "1 s", "1e3", "inf", "nan",
                                 "1.2.3", ".", "1s ", "99999999999999999999d", "0x10"}) {
    EXPECT_EQ(parse_duration(each), std::nullopt) << each;
  }
}

TEST(Durations, AreShownForPeople) {
  EXPECT_EQ(to_text(milliseconds{-5}), "0 ms");
  EXPECT_EQ(to_text(milliseconds{250}), "250 ms");
  EXPECT_EQ(to_text(milliseconds{3299}), "3.2 s");
  EXPECT_EQ(to_text(milliseconds{125'000}), "2 min 5 s");
  EXPECT_EQ(to_text(milliseconds{120'000}), "2 min");
  EXPECT_EQ(to_text(std::chrono::minutes{192}), "3 h 12 min");
  EXPECT_EQ(to_text(std::chrono::hours{51}), "2 d 3 h");
}

TEST(Numbers, AreWholeAndWithinTheLimit) {
  EXPECT_EQ(parse_number("0", 255), 0U);
  EXPECT_EQ(parse_number("255", 255), 255U);
  for (const char* const each : {"", "256", "-1", "+1", "1.0", "1 ", "99999999999999999999999"}) {
    EXPECT_EQ(parse_number(each, 255), std::nullopt) << each;
  }
}

TEST(Printable, LetsNothingMoveTheCursor) {
  EXPECT_EQ(printable("a\nb\x1b[2Jc\x7f"), "a b [2Jc ");
  EXPECT_EQ(printable("\xC2\x9B"
                      "2J"),
            " 2J");
  EXPECT_EQ(printable("größe"), "größe");
  EXPECT_EQ(printable("a\xFF\xC2"), "a??");
}

TEST(Table, AlignsByCharactersNotBytes) {
  table made{{"NAME", "N"}};
  made.add({"größe", "1"});
  made.add({"ab", "22"});

  EXPECT_EQ(made.text(), "NAME   N\ngröße  1\nab     22\n");
}

TEST(Nearest, FindsTheMistypedWord) {
  EXPECT_EQ(nearest("nonblok", {"nonblock", "wait", "shared"}), "nonblock");
  EXPECT_EQ(nearest("sharde", {"nonblock", "wait", "shared"}), "shared");
  EXPECT_EQ(nearest("zzzzzzz", {"nonblock", "wait", "shared"}), std::nullopt);
  EXPECT_EQ(nearest("", {"", "ls"}), std::nullopt);
}

}  // namespace
}  // namespace sallyport::cli
