#include "backends/local/watch_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace sallyport::backends::local {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

struct told_watcher final : peer_watcher {
  bool begin_watching(client_number peer) override {
    if (refuses.contains(peer)) return false;
    EXPECT_TRUE(watched.insert(peer).second) << "watched twice";
    return true;
  }
  void end_watching(client_number peer) noexcept override { EXPECT_EQ(watched.erase(peer), 1U); }
  std::set<client_number> watched;
  std::set<client_number> refuses;
};

class WatchList : public ::testing::Test {
 protected:
  static holder_id id(std::uint64_t who) { return {1, who}; }
  told_watcher kernel;
  watch_list list{kernel};
};

TEST_F(WatchList, RemembersNumbersUntilToldToForget) {
  EXPECT_EQ(list.known(id(1)), 0U);
  list.remember(id(1), 7, {});
  EXPECT_EQ(list.known(id(1)), 7U);
  list.remember(id(1), 8, {});
  EXPECT_EQ(list.known(id(1)), 8U);

  list.forget(id(1));

  EXPECT_EQ(list.known(id(1)), 0U);
  EXPECT_TRUE(list.empty());
}

TEST_F(WatchList, KeepsTheNumberOfOneWhoseReleaseFoundNothing) {
  list.remember(id(1), 7, {});
  list.left(id(1), false, backend_api::leave_answer::not_there);
  EXPECT_EQ(list.known(id(1)), 7U);

  list.left(id(1), true, backend_api::leave_answer::not_there);

  EXPECT_EQ(list.known(id(1)), 0U);
  list.remember(id(1), 8, {});
  list.left(id(1), false, backend_api::leave_answer::left);
  EXPECT_EQ(list.known(id(1)), 0U);
}

TEST_F(WatchList, TellsEverybodyWhoWaitsForADeath) {
  list.remember(id(1), 1, {10, 11});
  list.remember(id(2), 2, {11});

  EXPECT_THAT(list.died(11), UnorderedElementsAre(id(1), id(2)));

  EXPECT_THAT(kernel.watched, ElementsAre(10));
  EXPECT_THAT(list.died(11), IsEmpty());
}

TEST_F(WatchList, TellsNobodyWhoNoLongerWaits) {
  list.remember(id(1), 1, {10});
  list.remember(id(2), 2, {10});
  list.remember(id(1), 1, {11});
  list.forget(id(2));

  EXPECT_FALSE(list.watches(id(1), 10));
  EXPECT_TRUE(list.watches(id(1), 11));
  EXPECT_THAT(list.died(10), IsEmpty());
  EXPECT_THAT(list.died(11), ElementsAre(id(1)));
}

TEST_F(WatchList, WatchesAgainAfterADeathWasTold) {
  list.remember(id(1), 1, {10});
  ASSERT_THAT(list.died(10), ElementsAre(id(1)));
  list.remember(id(1), 1, {11});

  list.remember(id(1), 1, {10});

  EXPECT_THAT(list.died(10), ElementsAre(id(1)));
}

TEST_F(WatchList, GoesOnWithoutAPeerThatCannotBeWatched) {
  kernel.refuses = {10};
  list.remember(id(1), 1, {10, 11});

  EXPECT_THAT(list.died(10), IsEmpty());
  EXPECT_THAT(list.died(11), ElementsAre(id(1)));
}

TEST_F(WatchList, KeepsFewIdleWatches) {
  for (client_number peer = 1; peer <= 10 * watch_list::most_idle; ++peer) {
    list.remember(id(1), 1, {peer});
    EXPECT_LE(kernel.watched.size(), watch_list::most_idle + 1);
    EXPECT_TRUE(kernel.watched.contains(peer));
  }
}

}  // namespace
}  // namespace sallyport::backends::local
