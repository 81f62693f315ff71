#include "tests/contract/kit/contract_test.hpp"

#include <algorithm>
#include <vector>

// Promise 4: tokens strictly grow from one exclusive grant to the next.
namespace sallyport::contract {
namespace {

class Fencing : public contract_test {
 protected:
  /// A store that does not promise fencing refuses those who require it; then there is nothing more
  /// to test.
  [[nodiscard]] bool claimed() {
    if (claims().fencing) return true;
    const auto client = open();
    EXPECT_EQ(error_of([&] {
                mutex{client, "door", {.require_fencing = true}};
              }),
              errc::not_supported);
    return false;
  }
};

TEST_F(Fencing, CanBeRequiredWhereItIsPromised) {
  if (!claimed()) return;
  const auto client = open();

  mutex lock{client, "door", {.require_fencing = true}};
  const auto held = lock.acquire();

  EXPECT_TRUE(held.fenced());
  EXPECT_GT(held.token(), fencing_token{});
  EXPECT_LT(held.token().value(), std::uint64_t{1} << 53);
}

TEST_F(Fencing, GrowsFromHolderToHolderAcrossClients) {
  if (!claimed()) return;
  mutex one{open("one"), "door", lasting()};
  mutex two{open("two"), "door", lasting()};

  fencing_token last;
  for (int round = 0; round < 5; ++round) {
    for (mutex* const lock : {&one, &two}) {
      const auto held = lock->try_acquire_for(patience);
      ASSERT_TRUE(held);
      EXPECT_GT(held->token(), last);
      last = held->token();
    }
  }
}

TEST_F(Fencing, GrowsAcrossHandOffs) {
  if (!claimed()) return;
  const auto watching = open("watching");
  mutex one{open("one"), "door", lasting()};
  mutex two{open("two"), "door", lasting()};
  auto first = one.acquire();
  background waiter([&] { return two.try_acquire_for(patience); });
  ASSERT_TRUE(waiters_become(watching, "door", 1));

  first.release();
  const auto second = waiter.get();

  ASSERT_TRUE(second);
  EXPECT_GT(second->token(), first.token());
}

TEST_F(Fencing, GrowsAcrossExpiry) {
  if (!claimed()) return;
  mutex one{open("one"), "door", ending()};
  mutex two{open("two"), "door", lasting()};

  const auto lapsed = one.acquire();
  const auto next = two.try_acquire_for(patience);

  ASSERT_TRUE(next);
  EXPECT_GT(next->token(), lapsed.token());
}

TEST_F(Fencing, GrowsAcrossBreaks) {
  if (!claimed()) return;
  const auto client = open("two");
  mutex one{open("one"), "door", lasting()};
  mutex two{client, "door", lasting()};
  const auto broken = one.acquire();

  client.break_lock("door", broken.token(), break_style::at_once);
  const auto next = two.try_acquire_for(patience);

  ASSERT_TRUE(next);
  EXPECT_GT(next->token(), broken.token());
}

TEST_F(Fencing, GrowsAcrossRestartsOfClients) {
  if (!claimed()) return;
  fencing_token last;

  for (int restart = 0; restart < 4; ++restart) {
    const auto client = open("restarted");
    mutex lock{client, "door", {.lease_length = 60s, .local_turns = 16}};
    const auto held = lock.try_acquire_for(patience);
    ASSERT_TRUE(held);
    EXPECT_GT(held->token(), last);
    last = held->token();
  }
}

TEST_F(Fencing, GrowsWhileTheNameIsNotInUseInBetween) {
  if (!claimed()) return;
  const auto client = open();
  mutex door{client, "door", lasting()};
  mutex other{client, "other", lasting()};

  const auto first = door.acquire().token();
  EXPECT_TRUE(becomes_free(client, "door"));
  other.acquire().release();
  const auto second = door.acquire().token();

  EXPECT_GT(second, first);
}

TEST_F(Fencing, StaysTheSameUnderRenewal) {
  if (!claimed()) return;
  const auto client = open();
  mutex lock{client, "door", {.lease_length = 2 * short_lease(), .local_turns = 1}};

  const auto held = lock.acquire();
  const auto token = held.token();
  const auto deadline = held.deadline();
  ASSERT_TRUE(eventually([&] { return held.deadline() > deadline; }));

  EXPECT_EQ(held.token(), token);
  EXPECT_EQ(client.who("door").value().holders.at(0).token, token);
}

TEST_F(Fencing, StaysTheSameOnReentry) {
  if (!claimed()) return;
  recursive_mutex lock{open(), "door", lasting()};

  const auto outer = lock.acquire();
  const auto inner = lock.acquire();

  EXPECT_EQ(inner.token(), outer.token());
}

TEST_F(Fencing, OfReadersLiesBetweenThatOfTheWritersAroundThem) {
  const auto client = open();
  if (!claimed()) return;
  if (!claims().shared_locks) {
    EXPECT_EQ(error_of([&] { shared_mutex{client, "page"}; }), errc::not_supported);
    return;
  }
  shared_mutex one{client, "page", lasting()};
  shared_mutex two{open("two"), "page", lasting()};

  const auto before = one.acquire().token();
  std::vector<fencing_token> readers;
  {
    const auto first = two.try_acquire_shared_for(patience);
    const auto second = one.try_acquire_shared_for(patience);
    ASSERT_TRUE(first && second);
    readers = {first->token(), second->token()};
  }
  const auto after = two.try_acquire_for(patience);
  ASSERT_TRUE(after);

  EXPECT_GT(*std::ranges::min_element(readers), before);
  EXPECT_LT(*std::ranges::max_element(readers), after->token());
}

TEST_F(Fencing, StaysTheSameOnDowngradeAndIsBelowTheNextWriters) {
  const auto client = open();
  if (!claimed()) return;
  if (!claims().shared_locks) {
    EXPECT_EQ(error_of([&] { shared_mutex{client, "page"}; }), errc::not_supported);
    return;
  }
  shared_mutex page{client, "page", lasting()};

  auto held = page.acquire();
  const auto token = held.token();
  held.downgrade();
  EXPECT_EQ(held.token(), token);
  EXPECT_EQ(held.fence_pass().mode, lock_mode::shared);
  held.release();

  EXPECT_GT(page.acquire().token(), token);
}

TEST_F(Fencing, IsNothingThatPermitsCarry) {
  const auto client = open();
  if (!claims().semaphores) {
    EXPECT_EQ(error_of([&] { semaphore{client, "pool", 2}; }), errc::not_supported);
    return;
  }
  semaphore pool{client, "pool", 2, lasting()};
  const auto permit = pool.acquire();

  EXPECT_FALSE(permit.fenced());
  EXPECT_EQ(error_of([&] { (void)permit.token(); }), errc::no_fencing);
  EXPECT_EQ(error_of([&] { (void)permit.fence_pass(); }), errc::no_fencing);
}

TEST_F(Fencing, APassNamesTokenSpaceAndLock) {
  if (!claimed()) return;
  const auto client = open();
  mutex door{client, "door", lasting()};
  mutex window{client, "window", lasting()};
  const auto other_store = store().make();
  const auto elsewhere = client::open(other_store->address());
  mutex other_door{elsewhere, "door", lasting()};

  const auto at_door = door.acquire();
  const auto pass = at_door.fence_pass();

  EXPECT_EQ(pass.token, at_door.token());
  EXPECT_EQ(pass.mode, lock_mode::exclusive);
  EXPECT_NE(pass.lock, window.acquire().fence_pass().lock);
  EXPECT_NE(pass.lock, other_door.acquire().fence_pass().lock);
}

TEST_F(Fencing, AGateRefusesTheHolderThatWasLate) {
  if (!claimed()) return;
  mutex one{open("one"), "door", ending()};
  mutex two{open("two"), "door", lasting()};
  fence::memory_gate gate;
  int written = 0;

  const auto late = one.acquire();
  const auto next = two.try_acquire_for(patience);
  ASSERT_TRUE(next);

  EXPECT_EQ(gate.run(*next, [&] { written = 2; }), fence::verdict::passed);
  EXPECT_EQ(gate.run(late, [&] { written = 1; }), fence::verdict::stale);
  EXPECT_EQ(written, 2);
}

}  // namespace
}  // namespace sallyport::contract
