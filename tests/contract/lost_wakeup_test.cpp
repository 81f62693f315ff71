#include "tests/contract/kit/contract_test.hpp"

#include <vector>

// Promise 7: notifications are hints; a waiter re-reads the truth at a bounded interval.
namespace sallyport::contract {
namespace {

class LostWakeUp : public contract_test {
 protected:
  [[nodiscard]] static client_options beating(std::chrono::milliseconds heartbeat) {
    client_options options;
    options.heartbeat = heartbeat;
    return options;
  }
};

// Nobody releases, so nobody tells: only the waiter's own asking can find out.
TEST_F(LostWakeUp, AWaiterEntersWithinAHeartbeatAfterASilentHolderLapsed) {
  constexpr auto heartbeat = 100ms;
  mutex silent{open("silent"), "door", ending()};
  mutex wanted{open("waiter", beating(heartbeat)), "door", lasting()};

  const auto held = silent.acquire();
  const auto got = wanted.try_acquire_for(patience);
  const auto entered = lease_clock::now();

  ASSERT_TRUE(got);
  EXPECT_GE(entered, held.deadline());
  EXPECT_LT(entered, held.deadline() + short_lease() + heartbeat + slack);
}

TEST_F(LostWakeUp, AQueueOfWaitersBehindASilentHolderIsServedInWhole) {
  const auto watching = open("watching");
  mutex silent{open("silent"), "door", ending()};
  const auto held = silent.acquire();

  std::vector<background<bool>> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&, label = "waiter " + std::to_string(i)] {
      mutex wanted{open(label, beating(100ms)), "door", lasting()};
      return wanted.try_acquire_for(patience).has_value();
    });
  }

  for (auto& waiter : waiters) EXPECT_TRUE(waiter.get());
  EXPECT_TRUE(becomes_free(watching, "door"));
}

TEST_F(LostWakeUp, AWaitThatOutlivesManyHeartbeatsKeepsItsPlace) {
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  mutex first{open("first", beating(50ms)), "door", lasting()};
  mutex second{open("second", beating(50ms)), "door", lasting()};
  auto held = gate.acquire();
  background one([&] {
    const auto mine = first.try_acquire_for(patience);
    if (mine && !mine->fenced()) return fencing_token{1};
    return mine ? mine->token() : fencing_token{};
  });
  ASSERT_TRUE(waiters_become(watching, "door", 1));
  background two([&] {
    const auto mine = second.try_acquire_for(patience);
    if (mine && !mine->fenced()) return fencing_token{1};
    return mine ? mine->token() : fencing_token{};
  });
  ASSERT_TRUE(waiters_become(watching, "door", 2));

  wait_until(lease_clock::now() + 400ms);
  EXPECT_TRUE(!store().shows_waiters || waiter_count(watching, "door") == 2U);
  held.release();
  const auto first_token = one.get();
  const auto second_token = two.get();

  EXPECT_GT(first_token, fencing_token{});
  EXPECT_GT(second_token, fencing_token{});
  EXPECT_TRUE(!claims().fifo || !claims().fencing || first_token < second_token);
}

}  // namespace
}  // namespace sallyport::contract
