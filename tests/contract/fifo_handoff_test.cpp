#include "tests/contract/kit/contract_test.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <list>
#include <mutex>
#include <numeric>
#include <vector>

// Promise 6: first come, first served, and the releasing operation itself installs the next holder.
namespace sallyport::contract {
namespace {

/// Who entered, in order.
class guest_book {
 public:
  void sign(int guest) {
    const std::scoped_lock lock(mutex_);
    guests_.push_back(guest);
  }
  [[nodiscard]] std::vector<int> read() const {
    const std::scoped_lock lock(mutex_);
    return guests_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<int> guests_;
};

std::vector<int> numbers_below(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

class FifoHandOff : public contract_test {
 protected:
  /// In order where the store claims it; else everybody came in, in whatever order.
  void expect_served(std::vector<int> guests, int count) const {
    if (!claims().fifo) std::ranges::sort(guests);
    EXPECT_EQ(guests, numbers_below(count));
  }
};

TEST_F(FifoHandOff, ClientsEnterInTheOrderInWhichTheyQueued) {
  constexpr int guests = 6;
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  auto held = gate.acquire();
  guest_book book;

  std::list<mutex> locks;
  std::vector<background<bool>> waiters;
  for (int guest = 0; guest < guests; ++guest) {
    mutex& lock = locks.emplace_back(open("guest " + std::to_string(guest)), "door", lasting());
    waiters.emplace_back([&, guest] {
      const auto mine = lock.try_acquire_for(2 * patience);
      if (mine) book.sign(guest);
      return mine.has_value();
    });
    ASSERT_TRUE(waiters_become(watching, "door", static_cast<std::size_t>(guest) + 1));
  }
  held.release();
  for (auto& waiter : waiters) EXPECT_TRUE(waiter.get());

  expect_served(book.read(), guests);
}

TEST_F(FifoHandOff, AConfirmedLeaseIsNoLongerProvisional) {
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  auto held = gate.acquire();
  held.confirm();  // nobody handed it over: nothing to wait for
  EXPECT_TRUE(held.valid());
  mutex next{open("next"), "door", lasting()};
  background waiter([&] {
    auto mine = next.try_acquire_for(patience);
    if (mine) mine->confirm();
    return mine;
  });
  ASSERT_TRUE(waiters_become(watching, "door", 1));
  held.release();

  const auto got = waiter.get();
  ASSERT_TRUE(got);
  const auto seen = watching.who("door");

  EXPECT_TRUE(got->valid());
  ASSERT_TRUE(seen);
  ASSERT_EQ(seen->holders.size(), 1U);
  EXPECT_TRUE(seen->holders[0].claimed);
}

TEST_F(FifoHandOff, WhoShowsTheQueueInItsOrder) {
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  auto held = gate.acquire();
  mutex one{open("one"), "door", lasting()};
  mutex two{open("two"), "door", lasting()};
  background first_waiter([&] { return one.try_acquire_for(patience).has_value(); });
  ASSERT_TRUE(waiters_become(watching, "door", 1));
  background second_waiter([&] { return two.try_acquire_for(patience).has_value(); });
  ASSERT_TRUE(waiters_become(watching, "door", 2));

  const auto seen = watching.who("door");
  held.release();

  ASSERT_TRUE(seen);
  if (claims().fifo) {
    EXPECT_EQ(seen->waiters[0].label, "one");
    EXPECT_EQ(seen->waiters[1].label, "two");
  }
  EXPECT_TRUE(first_waiter.get());
  EXPECT_TRUE(second_waiter.get());
}

TEST_F(FifoHandOff, WithOneLocalTurnThreadsOfAllClientsEnterInTheOrderInWhichTheyCame) {
  const auto watching = open("watching");
  const auto one = open("one");
  const auto two = open("two");
  mutex gate{open("holder"), "door", lasting()};
  auto held = gate.acquire();
  guest_book book;
  std::vector<background<bool>> waiters;

  // Two of the same client in a row, too: each thread has a place of its own.
  const std::array<const client*, 5> arrivals{&one, &one, &two, &one, &two};
  for (std::size_t guest = 0; guest < arrivals.size(); ++guest) {
    waiters.emplace_back([&book, &via = *arrivals[guest], guest] {
      mutex lock{via, "door", lasting()};
      const auto mine = lock.try_acquire_for(2 * patience);
      if (mine) book.sign(static_cast<int>(guest));
      return mine.has_value();
    });
    ASSERT_TRUE(waiters_become(watching, "door", guest + 1));
  }
  held.release();
  for (auto& waiter : waiters) EXPECT_TRUE(waiter.get());

  expect_served(book.read(), static_cast<int>(arrivals.size()));
}

TEST_F(FifoHandOff, ThreadsOfOneClientEnterInTheOrderInWhichTheyCame) {
  constexpr int guests = 4;
  const auto client = open();
  const lock_options renewed{.lease_length = 3 * short_lease(), .local_turns = 16};
  mutex gate{client, "door", renewed};
  std::optional<lease> held = gate.acquire();
  guest_book book;
  std::vector<background<bool>> waiters;
  for (int guest = 0; guest < guests; ++guest) {
    waiters.emplace_back([&, guest] {
      const auto mine = gate.try_acquire_for(2 * patience);
      if (mine) book.sign(guest);
      return mine.has_value();
    });
    ASSERT_TRUE(eventually([&] {
      const auto seen = client.who("door");
      return seen && !seen->holders.empty() &&
             seen->holders[0].local_waiters == static_cast<std::uint32_t>(guest) + 1;
    }));
  }

  held.reset();
  for (auto& waiter : waiters) EXPECT_TRUE(waiter.get());

  EXPECT_EQ(book.read(), numbers_below(guests));
}

TEST_F(FifoHandOff, AReleaseMakesTheFirstWaiterTheHolder) {
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  mutex wanted{open("next"), "door", lasting()};
  auto held = gate.acquire();
  signal_flag leave;
  background next([&] {
    const auto mine = wanted.try_acquire_for(patience);
    leave.wait();
    return mine.has_value();
  });
  ASSERT_TRUE(waiters_become(watching, "door", 1));

  held.release();
  const auto seen = watching.who("door");
  leave.raise();

  EXPECT_TRUE(next.get());
  if (claims().direct_handoff) {
    ASSERT_TRUE(seen);
    ASSERT_EQ(seen->holders.size(), 1U);
    EXPECT_EQ(seen->holders[0].label, "next");
    EXPECT_TRUE(seen->waiters.empty());
  }
}

TEST_F(FifoHandOff, ATryDoesNotBargeInBetweenReleaseAndWaiter) {
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  mutex wanted{open("waiter"), "door", lasting()};
  mutex barging{open("barging"), "door", lasting()};

  for (int round = 0; round < 10; ++round) {
    auto held = gate.try_acquire_for(patience);
    ASSERT_TRUE(held);
    signal_flag leave;
    background waiter([&] {
      const auto mine = wanted.try_acquire_for(patience);
      leave.wait();
      return mine.has_value();
    });
    ASSERT_TRUE(waiters_become(watching, "door", 1));
    held->release();
    auto barged = barging.try_acquire();
    leave.raise();

    EXPECT_FALSE(claims().direct_handoff && barged);
    EXPECT_FALSE(gate.try_acquire() && barged);
    barged.reset();
    EXPECT_TRUE(waiter.get());
  }
}

TEST_F(FifoHandOff, TheReleaserComesAgainBehindThoseWhoWaited) {
  const auto watching = open("watching");
  mutex greedy{open("greedy"), "door", lasting()};
  mutex patient{open("patient"), "door", lasting()};
  auto held = greedy.try_acquire_for(patience);
  ASSERT_TRUE(held);
  guest_book book;
  background waiter([&] {
    const auto mine = patient.try_acquire_for(patience);
    book.sign(0);
    return mine.has_value();
  });
  ASSERT_TRUE(waiters_become(watching, "door", 1));

  held->release();
  auto again = greedy.try_acquire_for(patience);
  book.sign(1);

  EXPECT_TRUE(again);
  if (!claims().fifo) again.reset();  // it may have come first
  EXPECT_TRUE(waiter.get());
  expect_served(book.read(), 2);
}

TEST_F(FifoHandOff, AWaiterThatGaveUpIsPassedOver) {
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  mutex weary{open("weary"), "door", lasting()};
  mutex patient{open("patient"), "door", lasting()};
  auto held = gate.acquire();
  std::stop_source stop;
  background gives_up([&] { return weary.acquire(stop.get_token()).has_value(); });
  ASSERT_TRUE(waiters_become(watching, "door", 1));
  background stays([&] { return patient.try_acquire_for(patience).has_value(); });
  ASSERT_TRUE(waiters_become(watching, "door", 2));

  stop.request_stop();
  EXPECT_FALSE(gives_up.get());
  held.release();

  EXPECT_TRUE(stays.get());
}

TEST_F(FifoHandOff, ReadersNextToEachOtherEnterTogether) {
  const auto watching = open("watching");
  if (!claims().shared_locks) {
    EXPECT_EQ(error_of([&] { shared_mutex{watching, "page"}; }), errc::not_supported);
    return;
  }
  shared_mutex page{watching, "page", lasting()};
  auto writer = page.acquire();
  std::atomic<int> inside{0};
  std::vector<background<bool>> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&, label = "reader " + std::to_string(i)] {
      shared_mutex mine{open(label), "page", lasting()};
      const auto held = mine.try_acquire_shared_for(patience);
      ++inside;
      return held && eventually([&] { return inside == 3; });
    });
  }
  ASSERT_TRUE(waiters_become(watching, "page", 3));

  writer.release();

  for (auto& reader : readers) EXPECT_TRUE(reader.get());
}

TEST_F(FifoHandOff, PermitsAreHandedOnInOrder) {
  const auto watching = open("watching");
  if (!claims().semaphores) {
    EXPECT_EQ(error_of([&] { semaphore{watching, "pool", 1}; }), errc::not_supported);
    return;
  }
  semaphore pool{watching, "pool", 1, lasting()};
  auto permit = pool.acquire();
  guest_book book;
  std::vector<background<bool>> waiters;
  for (int guest = 0; guest < 3; ++guest) {
    waiters.emplace_back([&, guest] {
      const auto mine = pool.try_acquire_for(patience);
      if (mine) book.sign(guest);
      return mine.has_value();
    });
    ASSERT_TRUE(waiters_become(watching, "pool", static_cast<std::size_t>(guest) + 1));
  }

  permit.release();

  for (auto& waiter : waiters) EXPECT_TRUE(waiter.get());
  expect_served(book.read(), 3);
}

}  // namespace
}  // namespace sallyport::contract
