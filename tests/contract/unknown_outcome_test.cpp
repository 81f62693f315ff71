#include "tests/contract/kit/contract_test.hpp"

// Promise 9, as far as it shows without a fault: what may be said twice has the effect of saying it
// once. Lost answers and cut connections are made by the simulator and by each backend's own tests.
namespace sallyport::contract {
namespace {

class UnknownOutcome : public contract_test {};

TEST_F(UnknownOutcome, ReleasingTwiceIsReleasingOnce) {
  const auto client = open();
  mutex mine{client, "door", lasting()};
  mutex theirs{open("next"), "door", lasting()};
  auto held = mine.acquire();

  EXPECT_EQ(held.release(), release_result::released);
  const auto next = theirs.try_acquire();
  ASSERT_TRUE(next);
  EXPECT_EQ(held.release(), release_result::released);

  EXPECT_TRUE(next->valid());
  EXPECT_EQ(holder_count(client, "door"), 1U);
}

TEST_F(UnknownOutcome, AskingAgainWhileWaitingKeepsOnePlace) {
  client_options quick;
  quick.heartbeat = 50ms;
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  mutex wanted{open("waiter", quick), "door", lasting()};
  auto held = gate.acquire();
  background waiter([&] { return wanted.try_acquire_for(patience).has_value(); });
  ASSERT_TRUE(waiters_become(watching, "door", 1));

  bool always_one = true;
  const auto until = lease_clock::now() + 300ms;
  while (lease_clock::now() < until) {
    always_one = always_one && (!store().shows_waiters || waiter_count(watching, "door") == 1);
    wait_until(lease_clock::now() + 5ms);
  }
  held.release();

  EXPECT_TRUE(always_one);
  EXPECT_TRUE(waiter.get());
  EXPECT_TRUE(becomes_free(watching, "door"));
}

TEST_F(UnknownOutcome, AnAbandonedAttemptIsWithdrawnAndDoesNotHoldLater) {
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  mutex wanted{open("waiter"), "door", lasting()};

  for (int round = 0; round < 10; ++round) {
    auto held = gate.try_acquire_for(patience);
    ASSERT_TRUE(held);
    background releasing([&] { return held->release(); });
    const auto maybe = wanted.try_acquire_for(std::chrono::microseconds{100 * round});
    EXPECT_EQ(releasing.get(), release_result::released);
    EXPECT_TRUE(!maybe || maybe->valid());
  }

  EXPECT_TRUE(becomes_free(watching, "door"));
}

}  // namespace
}  // namespace sallyport::contract
