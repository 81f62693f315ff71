#include "sim/event_loop.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace sallyport::sim {
namespace {

using testing::ElementsAre;

TEST(EventLoop, RunsEventsInTheOrderOfTime) {
  event_loop loop;
  std::vector<int> seen;
  loop.at(30, [&] { seen.push_back(3); });
  loop.at(10, [&] { seen.push_back(1); });
  loop.at(20, [&] { seen.push_back(2); });

  while (loop.step(100)) {
  }

  EXPECT_THAT(seen, ElementsAre(1, 2, 3));
  EXPECT_EQ(loop.now(), 100);
}

TEST(EventLoop, RunsEventsOfOneMomentAsTheyWerePlanned) {
  event_loop loop;
  std::vector<int> seen;
  for (int i = 0; i < 5; ++i) loop.at(10, [&seen, i] { seen.push_back(i); });

  while (loop.step(10)) {
  }

  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4));
}

TEST(EventLoop, RunsWhatIsPlannedForThePastNow) {
  event_loop loop;
  true_time ran_at = 0;
  loop.at(50, [&] { loop.at(20, [&] { ran_at = loop.now(); }); });

  while (loop.step(100)) {
  }

  EXPECT_EQ(ran_at, 50);
}

TEST(EventLoop, LeavesWhatIsDueLater) {
  event_loop loop;
  loop.at(50, [] {});

  EXPECT_FALSE(loop.step(49));
  EXPECT_EQ(loop.now(), 49);
  EXPECT_TRUE(loop.step(50));
}

}  // namespace
}  // namespace sallyport::sim
