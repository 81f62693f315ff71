#include "tests/contract/kit/contract_test.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

namespace sallyport::contract {
namespace {

class LocalTurns : public contract_test {};

TEST_F(LocalTurns, EveryTurnHasALargerToken) {
  if (!claims().fencing) {
    EXPECT_EQ(error_of([&] {
                mutex{open(), "door", {.require_fencing = true}};
              }),
              errc::not_supported);
    return;
  }
  mutex lock{open(), "door", {.lease_length = 60s, .local_turns = 5}};
  std::atomic<std::uint64_t> last{0};
  std::atomic<int> disorder{0};
  std::vector<background<bool>> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 25; ++turn) {
        const auto held = lock.try_acquire_for(2 * patience);
        if (!held) return false;
        const auto token = held->token().value();
        if (last.exchange(token) >= token) ++disorder;
      }
      return true;
    });
  }
  for (auto& thread : threads) EXPECT_TRUE(thread.get());

  EXPECT_EQ(disorder.load(), 0);
}

TEST_F(LocalTurns, TokensGrowAcrossTwoClientsThatPassTurnsLocally) {
  if (!claims().fencing) {
    EXPECT_EQ(error_of([&] {
                mutex{open(), "door", {.require_fencing = true}};
              }),
              errc::not_supported);
    return;
  }
  std::atomic<std::uint64_t> last{0};
  std::atomic<int> disorder{0};
  mutex one{open("one"), "door", {.lease_length = 60s, .local_turns = 4}};
  mutex two{open("two"), "door", {.lease_length = 60s, .local_turns = 3}};
  std::vector<background<bool>> threads;
  for (mutex* const lock : {&one, &two, &one, &two, &one, &two}) {
    threads.emplace_back([&, lock] {
      for (int turn = 0; turn < 20; ++turn) {
        const auto held = lock->try_acquire_for(2 * patience);
        if (!held) return false;
        const auto token = held->token().value();
        if (last.exchange(token) >= token) ++disorder;
      }
      return true;
    });
  }
  for (auto& thread : threads) EXPECT_TRUE(thread.get());

  EXPECT_EQ(disorder.load(), 0);
}

/// Threads of one client that want a lock again and again, until told to stop.
class busy_client {
 public:
  busy_client(mutex& lock, int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, &lock] {
        while (!stop_.raised()) {
          const auto held = lock.try_acquire_for(2 * patience);
          if (!held) return false;
          ++turns_;
        }
        return true;
      });
    }
  }
  ~busy_client() { stop_.raise(); }
  busy_client(const busy_client&) = delete;
  busy_client& operator=(const busy_client&) = delete;

  [[nodiscard]] int turns() const { return turns_.load(); }
  void finish() {
    stop_.raise();
    for (auto& thread : threads_) EXPECT_TRUE(thread.get());
    threads_.clear();
  }

 private:
  signal_flag stop_;
  std::atomic<int> turns_{0};
  std::vector<background<bool>> threads_;
};

TEST_F(LocalTurns, AnotherClientIsServedAfterAtMostThatManyTurns) {
  constexpr std::uint32_t bound = 6;
  const auto watching = open("watching");
  mutex ours{
      open("busy"), "door", {.lease_length = 60s, .local_turns = bound, .local_turn_time = 1h}};
  mutex theirs{open("other"), "door", lasting()};
  busy_client busy{ours, 4};
  ASSERT_TRUE(eventually([&] { return busy.turns() > 20; }));

  for (int round = 0; round < 5; ++round) {
    std::atomic<int> turns_at_entry{-1};
    signal_flag leave;
    background other([&] {
      const auto held = theirs.try_acquire_for(patience);
      turns_at_entry = busy.turns();
      leave.wait();
      return held.has_value();
    });
    EXPECT_TRUE(eventually([&] {
      const auto seen = watching.who("door");
      const auto is_other = [](const waiter_info& waiter) { return waiter.label == "other"; };
      return turns_at_entry >= 0 || !store().shows_waiters ||
             (seen && std::ranges::any_of(seen->waiters, is_other));
    }));
    // Counted from when it was seen in the queue.
    const int turns_when_queued = busy.turns();
    EXPECT_TRUE(eventually([&] { return turns_at_entry >= 0; }));
    leave.raise();
    EXPECT_TRUE(other.get());
    if (claims().fifo) {
      EXPECT_LE(turns_at_entry - turns_when_queued, static_cast<int>(bound)) << "round " << round;
    }
  }
  busy.finish();
}

TEST_F(LocalTurns, AnotherClientIsServedAfterAtMostThatLong) {
  mutex ours{
      open("busy"), "door", {.lease_length = 60s, .local_turns = 100'000, .local_turn_time = 50ms}};
  mutex theirs{open("other"), "door", lasting()};
  busy_client busy{ours, 4};
  ASSERT_TRUE(eventually([&] { return busy.turns() > 20; }));

  for (int round = 0; round < 3; ++round) EXPECT_TRUE(theirs.try_acquire_for(patience));

  busy.finish();
}

TEST_F(LocalTurns, ABusyClientIsOneContenderInTheStore) {
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  auto held = gate.acquire();
  mutex wanted{open("busy"), "door", {.lease_length = 60s, .local_turns = 16}};
  std::vector<background<bool>> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] { return wanted.try_acquire_for(patience).has_value(); });
  }

  ASSERT_TRUE(waiters_become(watching, "door", 1));
  wait_until(lease_clock::now() + 50ms);
  EXPECT_TRUE(!store().shows_waiters || waiter_count(watching, "door") == 1U);
  held.release();

  for (auto& thread : threads) EXPECT_TRUE(thread.get());
  EXPECT_TRUE(becomes_free(watching, "door"));
}

TEST_F(LocalTurns, ATurnInheritsTheDeadlineOfItsGrantAndIsRenewedLikeIt) {
  const auto client = open();
  mutex lock{client, "door", {.lease_length = 2 * short_lease(), .local_turns = 16}};
  std::optional<lease> first = lock.acquire();
  background second([&] { return lock.try_acquire_for(patience); });
  ASSERT_TRUE(
      eventually([&] { return client.who("door").value().holders.at(0).local_waiters == 1; }));

  first.reset();
  const auto next = second.get();

  ASSERT_TRUE(next);
  EXPECT_LE(next->deadline(), lease_clock::now() + next->length());
  const auto deadline = next->deadline();
  EXPECT_TRUE(eventually([&] { return next->deadline() > deadline; }));
  EXPECT_TRUE(next->valid());
}

TEST_F(LocalTurns, AWaitingTurnOfAnotherLengthGetsItsOwnLength) {
  const auto client = open();
  mutex longer{client, "door", {.lease_length = 60s, .local_turns = 16}};
  mutex shorter{
      client, "door", {.lease_length = short_lease(), .renew = renewal::never, .local_turns = 16}};
  std::optional<lease> first = longer.acquire();
  background second([&] { return shorter.try_acquire_for(patience); });

  first.reset();
  const auto next = second.get();

  ASSERT_TRUE(next);
  EXPECT_LE(next->deadline(), lease_clock::now() + short_lease());
  EXPECT_TRUE(becomes_lost(*next));
}

TEST_F(LocalTurns, TheTokensOfALostGrantAreNeverUsed) {
  if (!claims().fencing) {
    EXPECT_EQ(error_of([&] {
                mutex{open(), "door", {.require_fencing = true}};
              }),
              errc::not_supported);
    return;
  }
  const auto watching = open("watching");
  const auto client = open("loser");
  mutex ours{
      client, "door", {.lease_length = short_lease(), .renew = renewal::never, .local_turns = 16}};
  mutex theirs{open("other"), "door", lasting()};
  const auto lapsing = ours.acquire();
  background other([&] {
    const auto held = theirs.try_acquire_for(patience);
    return held ? held->token() : fencing_token{};
  });
  ASSERT_TRUE(waiters_become(watching, "door", 1));
  // Behind the turn that lapses, in the same process.
  background next([&] {
    const auto held = ours.try_acquire_for(patience);
    return held ? held->token() : fencing_token{};
  });

  const auto between = other.get();
  const auto after = next.get();

  EXPECT_GT(between, lapsing.token());
  EXPECT_GT(after, lapsing.token());
  // Whoever came later has the larger one; the other client was in the queue of the store first.
  EXPECT_TRUE(!claims().fifo || after > between);
}

TEST_F(LocalTurns, AfterLossTheNextLocalTurnComesThroughTheStore) {
  const auto client = open();
  mutex lock{
      client, "door", {.lease_length = short_lease(), .renew = renewal::never, .local_turns = 16}};
  const auto lapsing = lock.acquire();

  const auto next = lock.try_acquire_for(patience);

  ASSERT_TRUE(next);
  EXPECT_FALSE(lapsing.valid());
  EXPECT_GE(lease_clock::now(), lapsing.deadline());
  EXPECT_TRUE(!claims().fencing || next->token() > lapsing.token());
}

}  // namespace
}  // namespace sallyport::contract
