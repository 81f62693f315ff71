#include "runtime/timer_queue.hpp"

#include "base/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <set>
#include <vector>

namespace sallyport::runtime {
namespace {

using namespace std::chrono_literals;

class test_timer : public timer {
 public:
  test_timer() : timer(kind::waiter) {}
};

constexpr time_point at(duration since_start) { return time_point{1'000h} + since_start; }

TEST(TimerQueue, HasNothingToDoWhenEmpty) {
  timer_queue timers;

  EXPECT_EQ(timers.next(), time_point::max());
  EXPECT_EQ(timers.pop_due(at(1h)), nullptr);
  EXPECT_EQ(timers.size(), 0U);
}

TEST(Timer, SaysWhoseItIs) {
  class party_timer : public timer {
   public:
    party_timer() : timer(kind::party) {}
  };

  EXPECT_EQ(party_timer{}.whose(), timer::kind::party);
  EXPECT_EQ(test_timer{}.whose(), timer::kind::waiter);
}

TEST(Timer, IsNotArmedAtFirst) { EXPECT_FALSE(test_timer{}.armed()); }

TEST(TimerQueue, TellsTheEarliestTime) {
  timer_queue timers;
  std::array<test_timer, 3> some;

  timers.arm(some[0], at(5s));
  timers.arm(some[1], at(2s));
  timers.arm(some[2], at(9s));

  EXPECT_EQ(timers.next(), at(2s));
  EXPECT_EQ(timers.size(), 3U);
}

TEST(TimerQueue, KeepsATimerUntilItsTime) {
  timer_queue timers;
  test_timer one;
  timers.arm(one, at(2s));

  EXPECT_EQ(timers.pop_due(at(2s) - 1ns), nullptr);
  EXPECT_TRUE(one.armed());
}

TEST(TimerQueue, GivesATimerExactlyAtItsTime) {
  timer_queue timers;
  test_timer one;
  timers.arm(one, at(2s));

  EXPECT_EQ(timers.pop_due(at(2s)), &one);
  EXPECT_FALSE(one.armed());
  EXPECT_EQ(timers.size(), 0U);
}

TEST(TimerQueue, GivesEachTimerOnce) {
  timer_queue timers;
  test_timer one;
  timers.arm(one, at(2s));

  ASSERT_EQ(timers.pop_due(at(3s)), &one);

  EXPECT_EQ(timers.pop_due(at(3s)), nullptr);
}

TEST(TimerQueue, GivesDueTimersInTheOrderOfTheirTimes) {
  timer_queue timers;
  std::array<test_timer, 4> some;
  timers.arm(some[0], at(3s));
  timers.arm(some[1], at(1s));
  timers.arm(some[2], at(4s));
  timers.arm(some[3], at(2s));

  EXPECT_EQ(timers.pop_due(at(3s)), &some[1]);
  EXPECT_EQ(timers.pop_due(at(3s)), &some[3]);
  EXPECT_EQ(timers.pop_due(at(3s)), &some[0]);
  EXPECT_EQ(timers.pop_due(at(3s)), nullptr);
  timers.disarm(some[2]);
}

TEST(TimerQueue, GivesAllTimersOfOneTime) {
  timer_queue timers;
  std::array<test_timer, 5> some;
  for (test_timer& each : some) timers.arm(each, at(1s));

  std::set<timer*> given;
  while (timer* const due = timers.pop_due(at(1s))) given.insert(due);

  EXPECT_EQ(given.size(), some.size());
}

TEST(TimerQueue, MovesAnArmedTimerForward) {
  timer_queue timers;
  std::array<test_timer, 2> some;
  timers.arm(some[0], at(1s));
  timers.arm(some[1], at(2s));

  timers.arm(some[0], at(3s));

  EXPECT_EQ(timers.size(), 2U);
  EXPECT_EQ(timers.pop_due(at(9s)), &some[1]);
  EXPECT_EQ(timers.pop_due(at(9s)), &some[0]);
}

TEST(TimerQueue, MovesAnArmedTimerBack) {
  timer_queue timers;
  std::array<test_timer, 2> some;
  timers.arm(some[0], at(1s));
  timers.arm(some[1], at(2s));

  timers.arm(some[1], at(500ms));

  EXPECT_EQ(timers.next(), at(500ms));
  EXPECT_EQ(some[1].when(), at(500ms));
  EXPECT_EQ(timers.pop_due(at(9s)), &some[1]);
  timers.disarm(some[0]);
}

TEST(TimerQueue, StaysAsItIsWhenATimerIsArmedForItsOwnTime) {
  timer_queue timers;
  test_timer one;
  timers.arm(one, at(1s));

  timers.arm(one, at(1s));

  EXPECT_EQ(timers.size(), 1U);
  EXPECT_EQ(timers.pop_due(at(1s)), &one);
}

TEST(TimerQueue, DisarmsATimerArmedForNever) {
  timer_queue timers;
  test_timer one;
  timers.arm(one, at(1s));

  timers.arm(one, time_point::max());

  EXPECT_FALSE(one.armed());
  EXPECT_EQ(timers.next(), time_point::max());
}

TEST(TimerQueue, DoesNotArmForNever) {
  timer_queue timers;
  test_timer one;

  timers.arm(one, time_point::max());

  EXPECT_FALSE(one.armed());
  EXPECT_EQ(timers.size(), 0U);
}

TEST(TimerQueue, ForgetsADisarmedTimer) {
  timer_queue timers;
  std::array<test_timer, 2> some;
  timers.arm(some[0], at(1s));
  timers.arm(some[1], at(2s));

  timers.disarm(some[0]);

  EXPECT_EQ(timers.next(), at(2s));
  EXPECT_EQ(timers.pop_due(at(9s)), &some[1]);
}

TEST(TimerQueue, IgnoresTheDisarmingOfAnUnarmedTimer) {
  timer_queue timers;
  test_timer one;
  test_timer armed;
  timers.arm(armed, at(1s));

  timers.disarm(one);

  EXPECT_EQ(timers.size(), 1U);
  timers.disarm(armed);
  timers.disarm(armed);
  EXPECT_EQ(timers.size(), 0U);
}

TEST(TimerQueue, TakesATimerAgainAfterItWasGiven) {
  timer_queue timers;
  test_timer one;
  timers.arm(one, at(1s));
  ASSERT_EQ(timers.pop_due(at(1s)), &one);

  timers.arm(one, at(2s));

  EXPECT_EQ(timers.next(), at(2s));
  timers.disarm(one);
}

TEST(TimerQueue, AgreesWithASortedSetUnderRandomUse) {
  base::random source{99};
  timer_queue timers;
  std::vector<test_timer> pool(64);
  std::map<timer*, time_point> expected;
  const auto earliest = [&expected] {
    time_point first = time_point::max();
    for (const auto& [which, when] : expected) first = std::min(first, when);
    return first;
  };

  for (int step = 0; step < 20'000; ++step) {
    test_timer& chosen = pool[source.below(pool.size())];
    // Few different times, so that ties are common.
    const time_point when = at(duration{source.below(40)});
    switch (source.below(4)) {
      case 0:
      case 1:
        timers.arm(chosen, when);
        expected[&chosen] = when;
        break;
      case 2:
        timers.disarm(chosen);
        expected.erase(&chosen);
        break;
      case 3:
        if (timer* const due = timers.pop_due(when)) {
          ASSERT_EQ(expected.at(due), earliest());
          ASSERT_LE(expected.at(due), when);
          expected.erase(due);
        } else {
          ASSERT_GT(earliest(), when);
        }
        break;
    }
    ASSERT_EQ(timers.size(), expected.size());
    ASSERT_EQ(timers.next(), earliest());
    ASSERT_EQ(chosen.armed(), expected.contains(&chosen));
  }
}

}  // namespace
}  // namespace sallyport::runtime
