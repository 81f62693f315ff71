#include "bench/harness/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace sallyport::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<program> two_programs() {
  return {{.id = "pair/limit",
           .group = "pairs",
           .title = "the bare thing",
           .limit = {},
           .figures = {{.name = "pair", .unit = "ns"}},
           .measure = {}},
          {.id = "pair/mine",
           .group = "pairs",
           .title = "ours",
           .limit = "pair/limit",
           .figures = {{.name = "pair", .unit = "ns", .wanted = times_limit(4)},
                       {.name = "threads", .unit = "", .wanted = exactly(1)}},
           .measure = {}}};
}

report sample_report() {
  report whole;
  const auto programs = two_programs();
  const std::vector<measured_rounds> measured{{{10}, {20}, {10}}, {{30, 1}, {60, 1}, {70, 1}}};
  whole.rows = make_rows(programs, measured);
  whole.machine.cores = 2;
  whole.machine.processor = "a \"quoted\" processor";
  whole.machine.optimised = true;
  whole.run.command = "bench";
  return whole;
}

TEST(Rows, StandBesideTheirLimitRoundByRound) {
  const auto rows = sample_report().rows;

  ASSERT_EQ(rows.size(), 3U);
  EXPECT_TRUE(rows[0].is_limit);
  EXPECT_FALSE(rows[0].ratio.has_value());
  ASSERT_TRUE(rows[1].ratio.has_value());
  EXPECT_EQ(*rows[1].ratio, (summary{.median = 3, .smallest = 3, .largest = 7}));
  EXPECT_EQ(rows[1].given, verdict::mostly_met);
  EXPECT_FALSE(rows[2].ratio.has_value());
  EXPECT_EQ(rows[2].given, verdict::met);
}

TEST(Rows, StandBesideTheFigureTheyName) {
  auto programs = two_programs();
  programs[1].figures[1].beside = "pair";
  const std::vector<measured_rounds> measured{{{10}, {20}}, {{30, 50}, {60, 80}}};

  const auto rows = make_rows(programs, measured);

  ASSERT_TRUE(rows[2].ratio.has_value());
  EXPECT_EQ(*rows[2].ratio, (summary{.median = 4.5, .smallest = 4, .largest = 5}));
  EXPECT_EQ(rows[2].limit_id, "pair/limit");
}

TEST(Rows, WithoutTheirLimitAreRefused) {
  const auto programs = two_programs();
  const std::vector<program> alone{programs[1]};
  const std::vector<measured_rounds> measured{{{30, 1}}};

  EXPECT_THROW(static_cast<void>(make_rows(alone, measured)), std::invalid_argument);
}

TEST(Rows, WithARoundThatLacksAFigureAreRefused) {
  const auto programs = two_programs();
  const std::vector<measured_rounds> measured{{{10}}, {{30}}};

  EXPECT_THROW(static_cast<void>(make_rows(programs, measured)), std::invalid_argument);
}

TEST(MissingPrograms, AreTakenOutWithTheReason) {
  auto programs = two_programs();
  programs[0].why_missing = [] { return std::string{}; };
  programs[1].why_missing = [] { return std::string{"not installed"}; };

  const auto missing = take_out_missing(programs);

  ASSERT_EQ(programs.size(), 1U);
  EXPECT_EQ(programs[0].id, "pair/limit");
  ASSERT_EQ(missing.size(), 1U);
  EXPECT_EQ(missing[0].id, "pair/mine");
  EXPECT_EQ(missing[0].why, "not installed");
}

TEST(MissingPrograms, AreNamedInTableAndJson) {
  report whole = sample_report();
  EXPECT_THAT(to_json(whole), HasSubstr("\"missing\": []"));

  whole.missing.push_back({.id = "pair/other", .why = "not installed"});

  EXPECT_THAT(to_table(whole), HasSubstr("\nmissing   pair/other: not installed\n"));
  EXPECT_THAT(to_json(whole), HasSubstr(R"("program": "pair/other",)"));
  EXPECT_THAT(to_json(whole), HasSubstr(R"("why": "not installed")"));
}

TEST(Table, ShowsFiguresRatiosBarsAndVerdicts) {
  const std::string text = to_table(sample_report());

  EXPECT_THAT(text, HasSubstr("\npairs\n"));
  EXPECT_THAT(text, HasSubstr("[30 - 70]"));
  EXPECT_THAT(text, HasSubstr("<= 4 x limit  mostly met\n"));
  EXPECT_THAT(text, HasSubstr("\n2 of 2 bars met\n"));
  EXPECT_THAT(text, Not(HasSubstr("mean nothing")));
}

TEST(Table, AlignsItsColumns) {
  const std::string text = to_table(sample_report());

  const auto column_of = [&text](const std::string& word) {
    const auto at = text.find(word);
    return at - text.rfind('\n', at);
  };
  EXPECT_EQ(column_of("verdict"), column_of("mostly met"));
  EXPECT_EQ(column_of("bar  "), column_of("<= 4"));
}

TEST(Table, WarnsOfABuildWithoutOptimisation) {
  report whole = sample_report();
  whole.machine.optimised = false;

  EXPECT_THAT(to_table(whole), HasSubstr("mean nothing"));
}

TEST(Json, HoldsRoundsRatiosAndVerdicts) {
  const std::string text = to_json(sample_report());

  EXPECT_THAT(text, HasSubstr("\"schema\": 1"));
  EXPECT_THAT(text, HasSubstr(R"("processor": "a \"quoted\" processor")"));
  EXPECT_THAT(text, HasSubstr("\"rounds\": [30, 60, 70]"));
  EXPECT_THAT(text, HasSubstr(R"("ratio_to_limit": {"median": 3, "min": 3, "max": 7})"));
  EXPECT_THAT(text, HasSubstr(R"("bar": "<= 4 x limit")"));
  EXPECT_THAT(text, HasSubstr("\"bar_met\": true"));
}

}  // namespace
}  // namespace sallyport::bench
