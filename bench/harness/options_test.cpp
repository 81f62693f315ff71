#include "bench/harness/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sallyport::bench {
namespace {

using testing::ElementsAre;
using words = std::vector<std::string_view>;

TEST(Options, HaveDefaults) {
  const options made = parse_options(words{});

  EXPECT_EQ(made.rounds, 7);
  EXPECT_EQ(made.hold, seconds{35});
  EXPECT_TRUE(made.json_path.empty());
}

TEST(Options, AreRead) {
  const options made = parse_options(words{"--rounds", "3", "--seconds", "0.5", "--json", "x.json",
                                           "--only", "handoff", "--hold", "2"});

  EXPECT_EQ(made.rounds, 3);
  EXPECT_EQ(made.time, seconds{0.5});
  EXPECT_EQ(made.hold, seconds{2});
  EXPECT_EQ(made.json_path, "x.json");
  EXPECT_EQ(made.only, "handoff");
}

TEST(Options, BesideQuickCountWhereverTheyStand) {
  const options before = parse_options(words{"--rounds", "9", "--quick"});
  const options after = parse_options(words{"--quick", "--rounds", "9"});

  EXPECT_EQ(before.rounds, 9);
  EXPECT_EQ(after.rounds, 9);
  EXPECT_EQ(before.hold, seconds{12});
}

TEST(Options, ThatMakeNoSenseAreRefused) {
  for (const words& wrong :
       {words{"--rounds"}, words{"--rounds", "0"}, words{"--rounds", "1.5"}, words{"--rounds", "x"},
        words{"--seconds", "-1"}, words{"--seconds", "1s"}, words{"--seconds", "nan"},
        words{"--what"}, words{"extra"}}) {
    EXPECT_THROW(static_cast<void>(parse_options(wrong)), usage_error) << wrong.back();
  }
}

std::vector<std::string> ids(const std::vector<program>& programs) {
  std::vector<std::string> all;
  all.reserve(programs.size());
  for (const auto& each : programs) all.push_back(each.id);
  return all;
}

TEST(Selection, BringsTheLimitsAlong) {
  std::vector<program> all(3);
  all[0].id = "pair/limit";
  all[1].id = "pair/mine";
  all[1].limit = "pair/limit";
  all[2].id = "else";
  all[2].group = "other things";

  EXPECT_THAT(ids(select(all, "mine")), ElementsAre("pair/limit", "pair/mine"));
  EXPECT_THAT(ids(select(all, "other")), ElementsAre("else"));
  EXPECT_THAT(ids(select(all, "")), ElementsAre("pair/limit", "pair/mine", "else"));
  EXPECT_THAT(ids(select(all, "nothing")), ElementsAre());
}

}  // namespace
}  // namespace sallyport::bench
