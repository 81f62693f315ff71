#include "tests/contract/kit/contract_test.hpp"

#include <stop_token>
#include <vector>

// Promise 8: a dead or cancelled waiter is skipped, and nothing of it stays behind.
namespace sallyport::contract {
namespace {

class WaitersMayDie : public contract_test {};

TEST_F(WaitersMayDie, ACancelledWaiterLeavesTheQueueAtOnce) {
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  mutex wanted{open("waiter"), "door", lasting()};
  const auto held = gate.acquire();
  std::stop_source stop;
  background waiter([&] { return wanted.acquire(stop.get_token()).has_value(); });
  ASSERT_TRUE(waiters_become(watching, "door", 1));

  stop.request_stop();

  EXPECT_FALSE(waiter.get());
  EXPECT_TRUE(waiters_become(watching, "door", 0));
  EXPECT_TRUE(held.valid());
}

TEST_F(WaitersMayDie, AWaiterWhoseTimeIsUpLeavesTheQueue) {
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  mutex wanted{open("waiter"), "door", lasting()};
  const auto held = gate.acquire();

  EXPECT_FALSE(wanted.try_acquire_for(50ms));

  EXPECT_TRUE(waiters_become(watching, "door", 0));
}

TEST_F(WaitersMayDie, ATryLeavesNothingBehind) {
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  mutex wanted{open("waiter"), "door", lasting()};
  auto held = gate.acquire();

  EXPECT_FALSE(wanted.try_acquire());

  EXPECT_EQ(waiter_count(watching, "door"), 0U);
  held.release();
  EXPECT_TRUE(becomes_free(watching, "door"));
}

TEST_F(WaitersMayDie, TheMiddleOfTheQueueMayGoAway) {
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  auto held = gate.acquire();
  std::vector<std::stop_source> stops(5);
  std::vector<background<bool>> waiters;
  for (std::size_t i = 0; i < stops.size(); ++i) {
    waiters.emplace_back([&, token = stops[i].get_token(), label = "waiter " + std::to_string(i)] {
      mutex wanted{open(label), "door", lasting()};
      return wanted.acquire(token).has_value();
    });
    ASSERT_TRUE(waiters_become(watching, "door", i + 1));
  }

  for (const std::size_t gone : {1U, 2U, 3U}) stops[gone].request_stop();
  ASSERT_TRUE(waiters_become(watching, "door", 2));
  held.release();

  for (std::size_t i = 0; i < waiters.size(); ++i) {
    EXPECT_EQ(waiters[i].get(), i == 0 || i == 4) << "waiter " << i;
  }
  EXPECT_TRUE(becomes_free(watching, "door"));
}

TEST_F(WaitersMayDie, CancellingRacesWithTheGrantAndLeaksNothing) {
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  mutex wanted{open("waiter"), "door", lasting()};

  for (int round = 0; round < 20; ++round) {
    auto held = gate.try_acquire_for(patience);
    ASSERT_TRUE(held);
    std::stop_source stop;
    background waiter([&] { return wanted.acquire(stop.get_token()).has_value(); });
    ASSERT_TRUE(waiters_become(watching, "door", 1));
    background cancelling([&] { return stop.request_stop(); });
    held->release();
    waiter.get();
    cancelling.get();
  }

  EXPECT_TRUE(becomes_free(watching, "door"));
}

TEST_F(WaitersMayDie, AfterAllHaveEndedTheStoreIsEmpty) {
  const auto watching = open("watching");
  {
    const auto client = open("busy");
    mutex door{client, "door", lasting()};
    mutex window{client, "window", ending()};
    auto held = door.acquire();
    const auto lapsing = window.acquire();
    mutex other{open("other"), "door", lasting()};
    EXPECT_FALSE(other.try_acquire_for(30ms));
    EXPECT_FALSE(other.try_acquire());
    if (claims().shared_locks) {
      shared_mutex page{client, "page", lasting()};
      auto writer = page.acquire();
      writer.downgrade();
      const auto reader = page.acquire_shared();
      EXPECT_FALSE(page.try_acquire_for(30ms));
    }
    if (claims().semaphores) {
      semaphore pool{client, "pool", 1, lasting()};
      const auto permit = pool.acquire();
      EXPECT_FALSE(pool.try_acquire_for(30ms));
    }
    if (claims().elections) {
      election leader{client, "leader", lasting()};
      const auto leads = leader.campaign("me");
    }
    EXPECT_TRUE(watching.who("door"));
  }

  EXPECT_TRUE(eventually([&] { return static_cast<bool>(lists(watching, 0)); }));
}

TEST_F(WaitersMayDie, AClientThatIsClosedWhileOthersWaitTakesNothingAlong) {
  const auto watching = open("watching");
  mutex wanted{open("stays"), "door", lasting()};
  std::optional<background<bool>> waiter;
  {
    mutex gate{open("leaves"), "door", lasting()};
    const auto held = gate.acquire();
    waiter.emplace([&] { return wanted.try_acquire_for(patience).has_value(); });
    ASSERT_TRUE(waiters_become(watching, "door", 1));
  }

  EXPECT_TRUE(waiter->get());
  EXPECT_TRUE(becomes_free(watching, "door"));
}

}  // namespace
}  // namespace sallyport::contract
