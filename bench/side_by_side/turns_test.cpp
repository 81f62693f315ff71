#include "bench/side_by_side/turns.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace sallyport::bench {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t ms = 1'000'000;
constexpr turn_window one_second{.begin = 0, .end = 1000 * ms};

/// A turn that is wanted, entered and released at those milliseconds.
turn at(int seat, std::int64_t wanted, std::int64_t entered, std::int64_t released) {
  return {.seat = seat,
          .wanted_at = wanted * ms,
          .entered_at = entered * ms,
          .released_at = released * ms};
}

TEST(Turns, AreReadLineByLine) {
  EXPECT_THAT(parse_turns(""), IsEmpty());
  EXPECT_THAT(parse_turns("0 10 20 30 0\n7 11 9000000000000 9000000000001 2\n"),
              ElementsAre(turn{0, 10, 20, 30, 0}, turn{7, 11, 9000000000000, 9000000000001, 2}));
}

TEST(Turns, OfAnotherFormAreRefused) {
  for (const char* wrong :
       {"0 10 20 30\n", "0 10 20 30 0 1\n", "0 10 20 30 x\n", "0 10 20 30 0", "\n",
        "0 1e1 20 30 0\n", "0 10 20 30 -1\n", "0 10 30 20 0\n", "0 30 20 40 0\n"}) {
    EXPECT_THROW(static_cast<void>(parse_turns(wrong)), std::runtime_error) << wrong;
  }
}

TEST(TurnFigures, CountAHandOffWhereSomebodyElseWasWaiting) {
  // Seat 1 waits for seat 0; seat 0 then comes when the lock is free.
  const auto made =
      figures_of({at(1, 5, 13, 20), at(0, 0, 1, 10), at(0, 30, 31, 40)}, one_second, 2);

  EXPECT_DOUBLE_EQ(made.handoff_p50_us, 3000);
  EXPECT_DOUBLE_EQ(made.handoff_p99_us, 3000);
  EXPECT_DOUBLE_EQ(made.changes_per_second, 2);
  EXPECT_DOUBLE_EQ(made.turns_per_second, 3);
  EXPECT_DOUBLE_EQ(made.most_to_fewest, 2);
  EXPECT_DOUBLE_EQ(made.without_a_turn, 0);
  EXPECT_DOUBLE_EQ(made.longest_wait_ms, 8);
}

TEST(TurnFigures, TellTheLongestHandOffOfThoseWithinTheWindow) {
  // 1, 2 and 7 ms; then 300 ms, of somebody who came when the lock was free, and 50 ms, too late.
  const auto made = figures_of({at(0, 0, 1, 10), at(1, 0, 11, 20), at(0, 15, 22, 30),
                                at(1, 25, 37, 40), at(0, 300, 340, 990), at(1, 900, 1040, 1050)},
                               one_second, 2);

  EXPECT_DOUBLE_EQ(made.handoff_p50_us, 2000);
  EXPECT_DOUBLE_EQ(made.handoff_longest_us, 7000);
}

TEST(TurnFigures, HaveNoHandOffWhereOneContenderKeepsTheLock) {
  const auto made = figures_of({at(0, 0, 1, 2), at(0, 2, 3, 4)}, one_second, 2);

  EXPECT_TRUE(std::isnan(made.handoff_p50_us));
  EXPECT_TRUE(std::isnan(made.handoff_longest_us));
  EXPECT_DOUBLE_EQ(made.changes_per_second, 0);
  EXPECT_DOUBLE_EQ(made.most_to_fewest, 2);
  EXPECT_DOUBLE_EQ(made.without_a_turn, 1);
}

TEST(TurnFigures, CountAWaitThatOutlastsTheWindowUpToItsEnd) {
  turn late = at(1, 100, 1500, 1501);
  late.gave_up = 3;

  const auto made = figures_of({at(0, 0, 1, 2), late, at(0, 1600, 1601, 1602)}, one_second, 2);

  EXPECT_DOUBLE_EQ(made.longest_wait_ms, 900);
  EXPECT_DOUBLE_EQ(made.gave_up, 3);
  EXPECT_DOUBLE_EQ(made.turns_per_second, 1);
  EXPECT_DOUBLE_EQ(made.changes_per_second, 0);
}

TEST(TurnFigures, AreRefusedWhenTwoWereInsideAtOnce) {
  EXPECT_THROW(static_cast<void>(figures_of({at(0, 0, 1, 10), at(1, 5, 9, 20)}, one_second, 2)),
               std::runtime_error);
}

TEST(TurnFigures, AreRefusedWithATurnOfNobody) {
  EXPECT_THROW(static_cast<void>(figures_of({at(2, 0, 1, 10)}, one_second, 2)), std::runtime_error);
}

TEST(LoneFigures, AreTheMediansOfTheTurnsWantedWithinTheWindow) {
  // Pairs of 4, 6 and 20 ms, acquires of 1, 2, 3 and 9 ms; a slow turn on either side.
  const auto made = lone_figures_of({at(0, -100, -10, -1), at(0, 0, 1, 2), at(0, 4, 6, 7),
                                     at(0, 10, 13, 20), at(0, 30, 39, 40), at(0, 1000, 1500, 1600)},
                                    one_second);

  EXPECT_DOUBLE_EQ(made.pair_p50_us, 6000);
  EXPECT_DOUBLE_EQ(made.acquire_p50_us, 2000);
}

TEST(LoneFigures, AreRefusedWithoutAPairWithinTheWindow) {
  EXPECT_THROW(static_cast<void>(lone_figures_of({at(0, -5, -4, -3), at(0, 0, 1, 2)}, one_second)),
               std::runtime_error);
}

TEST(TurnPairs, TakeTheMeanFromTurnToTurn) {
  EXPECT_DOUBLE_EQ(microseconds_per_pair({at(0, 0, 1, 2), at(0, 3, 4, 5), at(0, 8, 9, 10)}), 4000);
  EXPECT_THROW(static_cast<void>(microseconds_per_pair({at(0, 0, 1, 2)})), std::runtime_error);
}

}  // namespace
}  // namespace sallyport::bench
