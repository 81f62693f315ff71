#include "bench/harness/runner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace sallyport::bench {
namespace {

using testing::ElementsAre;

class Runner : public testing::Test {
 protected:
  program make(const std::string& id, repetition how = repetition::every_round) {
    return {.id = id,
            .group = {},
            .title = {},
            .limit = {},
            .figures = {{.name = "calls", .unit = ""}},
            .repeat = how,
            .measure = [this, id](const measure_settings&) {
              order_ += id;
              return std::vector<double>{static_cast<double>(order_.size())};
            }};
  }

  std::string order_;
  progress told_;
};

TEST_F(Runner, TakesProgramsInTurnForwardsAndBackwards) {
  const std::vector<program> programs{make("a"), make("b"), make("c")};

  const auto measured = run_all(programs, {.rounds = 2}, told_);

  EXPECT_EQ(order_, "cbaabccba");
  ASSERT_EQ(measured.size(), 3U);
  EXPECT_THAT(measured[0], ElementsAre(ElementsAre(4), ElementsAre(9)));
}

TEST_F(Runner, LeavesWhatIsMeasuredOnceToTheEnd) {
  const std::vector<program> programs{make("x", repetition::once), make("a")};

  const auto measured = run_all(programs, {.rounds = 2}, told_);

  EXPECT_EQ(order_, "aaax");
  EXPECT_EQ(measured[0].size(), 1U);
}

TEST_F(Runner, NamesTheProgramThatFailed) {
  std::vector<program> programs{make("broken")};
  programs[0].measure = [](const measure_settings&) -> std::vector<double> {
    throw std::runtime_error("no luck");
  };

  try {
    static_cast<void>(run_all(programs, {.rounds = 1}, told_));
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& failure) {
    EXPECT_STREQ(failure.what(), "broken: no luck");
  }
}

TEST_F(Runner, RefusesTheWrongNumberOfFigures) {
  std::vector<program> programs{make("silent")};
  programs[0].measure = [](const measure_settings&) { return std::vector<double>{}; };

  EXPECT_THROW(static_cast<void>(run_all(programs, {.rounds = 1}, told_)), std::runtime_error);
}

}  // namespace
}  // namespace sallyport::bench
