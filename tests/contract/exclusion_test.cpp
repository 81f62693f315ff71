#include "tests/contract/kit/contract_test.hpp"

#include <algorithm>
#include <atomic>
#include <list>
#include <vector>

// Promise 1: never two valid leases on one mutex, counted by the holders' own clocks.
namespace sallyport::contract {
namespace {

/// Counts who is inside. Atomics only, so that the lock under test is not helped by a lock of the
/// test.
class crowd {
 public:
  void enter() {
    const int now = ++inside_;
    int most = most_.load();
    while (now > most && !most_.compare_exchange_weak(most, now)) {
    }
  }
  void leave() { --inside_; }
  [[nodiscard]] int most() const { return most_.load(); }

 private:
  std::atomic<int> inside_{0};
  std::atomic<int> most_{0};
};

class Exclusion : public contract_test {};

TEST_F(Exclusion, AHeldMutexIsNotGivenToAnotherClient) {
  const auto one = open("one");
  const auto two = open("two");
  mutex mine{one, "door", lasting()};
  mutex theirs{two, "door", lasting()};

  auto held = mine.try_acquire();
  ASSERT_TRUE(held);

  EXPECT_FALSE(theirs.try_acquire());
  EXPECT_FALSE(theirs.try_acquire_for(50ms));
  EXPECT_TRUE(held->valid());
  held->release();
  EXPECT_TRUE(theirs.try_acquire_for(patience));
}

TEST_F(Exclusion, AHeldMutexIsNotGivenToAnotherCallerOfTheSameClient) {
  const auto client = open();
  mutex one{client, "door", lasting()};
  mutex two{client, "door", lasting()};

  auto held = one.try_acquire();
  ASSERT_TRUE(held);

  EXPECT_FALSE(one.try_acquire());
  EXPECT_FALSE(two.try_acquire());
  EXPECT_FALSE(two.try_acquire_for(20ms));
  held.reset();
  EXPECT_TRUE(store().waiters_ask ? two.try_acquire_for(patience) : two.try_acquire());
}

TEST_F(Exclusion, ThreadsOfManyClientsAreInsideOneAtATime) {
  constexpr int clients = 3;
  constexpr int threads_each = 2;
  constexpr int rounds = 30;
  crowd inside;
  std::atomic<int> entered{0};

  std::list<mutex> locks;
  for (int i = 0; i < clients; ++i) {
    locks.emplace_back(open("client " + std::to_string(i)), "door",
                       lock_options{.lease_length = 60s, .local_turns = 4});
  }
  std::vector<background<bool>> workers;
  for (mutex& lock : locks) {
    for (int i = 0; i < threads_each; ++i) {
      workers.emplace_back([&] {
        for (int round = 0; round < rounds; ++round) {
          const auto held = lock.try_acquire_for(2 * patience);
          if (!held) return false;
          inside.enter();
          ++entered;
          inside.leave();
        }
        return true;
      });
    }
  }
  for (auto& worker : workers) EXPECT_TRUE(worker.get());

  EXPECT_EQ(entered.load(), clients * threads_each * rounds);
  EXPECT_EQ(inside.most(), 1);
  EXPECT_TRUE(becomes_free(open(), "door"));
}

TEST_F(Exclusion, TheNextHolderEntersOnlyAfterTheLastOnesDeadline) {
  const auto one = open("one");
  const auto two = open("two");
  mutex mine{one, "door", ending()};
  mutex theirs{two, "door", lasting()};

  const auto abandoned = mine.acquire();
  const auto next = theirs.try_acquire_for(patience);
  const auto entered = lease_clock::now();

  ASSERT_TRUE(next);
  EXPECT_FALSE(abandoned.valid());
  EXPECT_GE(entered, abandoned.deadline());
}

TEST_F(Exclusion, ARenewedLeaseKeepsOthersOutForLongerThanItsLength) {
  const auto one = open("one");
  const auto two = open("two");
  const auto length = 3 * short_lease();
  mutex mine{one, "door", {.lease_length = length}};
  mutex theirs{two, "door", lasting()};

  const auto held = mine.acquire();
  const auto first_deadline = held.deadline();
  const auto got_in = theirs.try_acquire_for(length + length / 4);

  EXPECT_FALSE(got_in);
  EXPECT_TRUE(held.valid());
  EXPECT_GT(held.deadline(), first_deadline);
}

TEST_F(Exclusion, ReadersShareAndWritersDoNot) {
  const auto one = open("one");
  const auto two = open("two");
  if (!claims().shared_locks) {
    EXPECT_EQ(error_of([&] { shared_mutex{one, "page"}; }), errc::not_supported);
    return;
  }
  shared_mutex mine{one, "page", lasting()};
  shared_mutex theirs{two, "page", lasting()};

  auto reader = mine.try_acquire_shared();
  auto other_reader = theirs.try_acquire_shared();
  ASSERT_TRUE(reader);
  ASSERT_TRUE(other_reader);
  EXPECT_EQ(reader->mode(), lock_mode::shared);
  EXPECT_FALSE(theirs.try_acquire());

  reader.reset();
  other_reader.reset();
  const auto writer = theirs.try_acquire();
  ASSERT_TRUE(writer);
  EXPECT_EQ(writer->mode(), lock_mode::exclusive);
  EXPECT_FALSE(mine.try_acquire_shared());
  EXPECT_FALSE(mine.try_acquire());
}

TEST_F(Exclusion, ADowngradedWriterLetsReadersInAndKeepsWritersOut) {
  const auto one = open("one");
  const auto two = open("two");
  if (!claims().shared_locks) {
    EXPECT_EQ(error_of([&] { shared_mutex{one, "page"}; }), errc::not_supported);
    return;
  }
  shared_mutex mine{one, "page", lasting()};
  shared_mutex theirs{two, "page", lasting()};
  auto held = mine.acquire();
  background waiting_reader([&] { return theirs.try_acquire_shared_for(patience).has_value(); });
  ASSERT_TRUE(waiters_become(one, "page", 1));

  held.downgrade();

  EXPECT_TRUE(waiting_reader.get());
  EXPECT_EQ(held.mode(), lock_mode::shared);
  EXPECT_TRUE(held.valid());
  EXPECT_FALSE(theirs.try_acquire());
  held.release();
  EXPECT_TRUE(theirs.try_acquire_for(patience));
}

TEST_F(Exclusion, OnlyWritersOfASharedMutexCanBeDowngraded) {
  const auto client = open();
  mutex plain{client, "plain", lasting()};
  auto held = plain.acquire();

  EXPECT_EQ(error_of([&] { held.downgrade(); }), errc::not_supported);
  EXPECT_TRUE(held.valid());

  if (!claims().shared_locks) return;
  shared_mutex page{client, "page", lasting()};
  auto reader = page.acquire_shared();
  std::error_code error;
  reader.downgrade(error);
  EXPECT_EQ(error, errc::not_supported);
  EXPECT_TRUE(reader.valid());
}

TEST_F(Exclusion, AWaitingWriterIsNotOvertakenByNewReaders) {
  const auto one = open("one");
  const auto two = open("two");
  if (!claims().shared_locks) {
    EXPECT_EQ(error_of([&] { shared_mutex{one, "page"}; }), errc::not_supported);
    return;
  }
  shared_mutex mine{one, "page", lasting()};
  shared_mutex theirs{two, "page", lasting()};
  auto reader = mine.acquire_shared();
  background writer([&] { return theirs.try_acquire_for(patience).has_value(); });
  ASSERT_TRUE(waiters_become(one, "page", 1));

  EXPECT_EQ(mine.try_acquire_shared().has_value(), !claims().fifo);

  reader.release();
  EXPECT_TRUE(writer.get());
}

TEST_F(Exclusion, ASemaphoreNeverHasMoreHoldersThanPermits) {
  const auto client = open();
  if (!claims().semaphores) {
    EXPECT_EQ(error_of([&] { semaphore{client, "pool", 3}; }), errc::not_supported);
    return;
  }
  constexpr int permits = 3;
  crowd inside;
  std::vector<background<bool>> workers;
  for (int i = 0; i < 6; ++i) {
    workers.emplace_back([&, label = "worker " + std::to_string(i)] {
      semaphore pool{open(label), "pool", permits, lasting()};
      for (int round = 0; round < 15; ++round) {
        const auto permit = pool.try_acquire_for(2 * patience);
        if (!permit) return false;
        inside.enter();
        std::this_thread::yield();
        inside.leave();
      }
      return true;
    });
  }
  for (auto& worker : workers) EXPECT_TRUE(worker.get());

  EXPECT_LE(inside.most(), permits);
  EXPECT_TRUE(becomes_free(client, "pool"));
}

TEST_F(Exclusion, ASemaphoreGivesAllItsPermitsAndNotOneMore) {
  const auto client = open();
  if (!claims().semaphores) {
    EXPECT_EQ(error_of([&] { semaphore{client, "pool", 3}; }), errc::not_supported);
    return;
  }
  semaphore pool{client, "pool", 3, lasting()};

  std::vector<lease> permits;
  for (int i = 0; i < 3; ++i) permits.push_back(pool.acquire());

  EXPECT_FALSE(pool.try_acquire());
  permits.pop_back();
  EXPECT_TRUE(pool.try_acquire());
}

TEST_F(Exclusion, ANumberOfPermitsOutsideItsBoundsIsRefused) {
  const auto client = open();
  const auto refusal = claims().semaphores ? errc::bad_option : errc::not_supported;

  EXPECT_EQ(error_of([&] { semaphore{client, "pool", 0}; }), refusal);
  EXPECT_EQ(error_of([&] { semaphore{client, "pool", semaphore::max_permits + 1}; }), refusal);
}

}  // namespace
}  // namespace sallyport::contract
