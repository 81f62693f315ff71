#include "tests/contract/kit/contract_test.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stop_token>
#include <type_traits>
#include <utility>

// Promise 11: a lease is an object, not a property of a thread; re-entrancy is explicit and checks
// validity.
namespace sallyport::contract {
namespace {

static_assert(std::is_nothrow_move_constructible_v<lease>);
static_assert(std::is_nothrow_move_assignable_v<lease>);
static_assert(std::is_nothrow_destructible_v<lease>);
static_assert(!std::is_copy_constructible_v<lease>);
static_assert(std::is_copy_constructible_v<lease_view>);

class Handles : public contract_test {};

TEST_F(Handles, ALeaseIsReleasedByAnotherThreadThanTookIt) {
  const auto client = open();
  mutex lock{client, "door", lasting()};
  auto held = lock.acquire();
  const auto token = claims().fencing ? held.token() : fencing_token{};

  background elsewhere([&, moved = std::move(held)]() mutable {
    EXPECT_TRUE(moved.valid());
    EXPECT_TRUE(!claims().fencing || moved.token() == token);
    return moved.release();
  });

  EXPECT_FALSE(held.owns());  // NOLINT(bugprone-use-after-move): that is what is tested
  EXPECT_EQ(elsewhere.get(), release_result::released);
  EXPECT_TRUE(becomes_free(client, "door"));
}

TEST_F(Handles, ALeaseOutlivesTheThreadThatTookIt) {
  mutex lock{open(), "door", lasting()};

  background taker([&] { return std::optional<lease>{lock.acquire()}; });
  const auto held = taker.get();

  ASSERT_TRUE(held);
  EXPECT_TRUE(held->valid());
  EXPECT_FALSE(lock.try_acquire());
}

TEST_F(Handles, ALeaseOutlivesItsMutexAndItsClient) {
  const auto watching = open("watching");
  std::optional<lease> held;
  {
    mutex lock{open("short-lived"), "door", {.lease_length = 2 * short_lease()}};
    held = lock.acquire();
  }
  const auto deadline = held->deadline();

  EXPECT_TRUE(eventually([&] { return held->deadline() > deadline; })) << "no longer renewed";
  EXPECT_TRUE(held->valid());

  held.reset();
  EXPECT_TRUE(becomes_free(watching, "door"));
}

TEST_F(Handles, TheLastHandleOfAClientMayEndInsideACallback) {
  struct everything {
    explicit everything(const client& store)
        : lock(store, "door", ending()), held(lock.acquire()) {}
    mutex lock;
    lease held;
  };
  auto all = std::make_unique<everything>(open("short-lived"));
  signal_flag ended;
  std::optional<std::stop_callback<std::function<void()>>> callback;
  callback.emplace(all->held.lost(), [&] {
    all.reset();
    ended.raise();
  });

  EXPECT_TRUE(ended.wait());

  EXPECT_TRUE(becomes_free(open(), "door"));
}

TEST_F(Handles, TheDestructorGivesBack) {
  const auto client = open();
  mutex lock{client, "door", lasting()};

  { const auto held = lock.acquire(); }

  EXPECT_TRUE(becomes_free(client, "door"));
}

TEST_F(Handles, MoveAssignmentGivesBackWhatWasHeldBefore) {
  const auto client = open();
  mutex door{client, "door", lasting()};
  mutex window{client, "window", lasting()};
  auto held = door.acquire();
  auto other = window.acquire();

  held = std::move(other);

  EXPECT_TRUE(becomes_free(client, "door"));
  EXPECT_TRUE(held.owns());
  EXPECT_EQ(held.name(), lock_name("window"));
  EXPECT_EQ(holder_count(client, "window"), 1U);
}

TEST_F(Handles, AViewSeesTheEndOfItsLease) {
  mutex lock{open(), "door", lasting()};
  auto held = lock.acquire();
  const lease_view view = held;

  EXPECT_TRUE(view.valid());
  EXPECT_EQ(view.deadline(), held.deadline());
  held.release();

  EXPECT_FALSE(view.valid());
  EXPECT_EQ(view.state(), lease_state::released);
  EXPECT_EQ(error_of([&] { view.ensure_valid(); }), errc::lease_lost);
}

TEST_F(Handles, StdScopedLockTakesTwo) {
  const auto client = open();
  mutex orders{client, "orders", lasting()};
  mutex invoices{client, "invoices", lasting()};
  mutex others{open("other"), "orders", lasting()};
  {
    const std::scoped_lock guard{orders, invoices};

    ASSERT_TRUE(orders.current());
    EXPECT_TRUE(orders.current()->valid());
    EXPECT_TRUE(invoices.current()->valid());
    EXPECT_FALSE(others.try_lock());
  }
  EXPECT_FALSE(orders.current());
  EXPECT_TRUE(becomes_free(client, "orders"));
  EXPECT_TRUE(becomes_free(client, "invoices"));
}

TEST_F(Handles, StdScopedLocksInOppositeOrderDoNotDeadlock) {
  const auto client = open();
  mutex a{client, "a", lasting()};
  mutex b{client, "b", lasting()};
  std::atomic<int> inside{0};
  std::atomic<int> worst{0};
  const auto work = [&](mutex& first, mutex& second) {
    for (int i = 0; i < 20; ++i) {
      const std::scoped_lock guard{first, second};
      const int now = ++inside;
      if (now > worst) worst = now;
      --inside;
    }
    return true;
  };

  background one([&] { return work(a, b); });
  background two([&] { return work(b, a); });

  EXPECT_TRUE(one.get());
  EXPECT_TRUE(two.get());
  EXPECT_EQ(worst.load(), 1);
}

TEST_F(Handles, StdUniqueLockWaitsForATime) {
  mutex mine{open("one"), "door", lasting()};
  mutex theirs{open("two"), "door", lasting()};
  const std::unique_lock held{mine};

  std::unique_lock wanted{theirs, std::defer_lock};
  EXPECT_FALSE(wanted.try_lock());
  EXPECT_FALSE(wanted.try_lock_for(20ms));
  EXPECT_FALSE(wanted.try_lock_until(lease_clock::now() + 20ms));

  EXPECT_FALSE(theirs.current());
}

TEST_F(Handles, AHoldBelongsToTheThreadThatCalledLock) {
  mutex lock{open(), "door", lasting()};
  lock.lock();

  background elsewhere([&] { return lock.current().has_value() || lock.try_lock(); });

  EXPECT_FALSE(elsewhere.get());
  EXPECT_TRUE(lock.current());
  lock.unlock();
  EXPECT_FALSE(lock.current());
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

TEST_F(Handles, UnlockingALostLockFreesNobodyElse) {
  mutex mine{open("one"), "door", ending()};
  mutex theirs{open("two"), "door", lasting()};
  mine.lock();
  const auto next = theirs.try_acquire_for(patience);
  ASSERT_TRUE(next);

  mine.unlock();

  EXPECT_TRUE(next->valid());
  EXPECT_FALSE(mine.current());
  EXPECT_FALSE(mine.try_acquire());
}

TEST_F(Handles, StdSharedLockReads) {
  const auto client = open();
  if (!claims().shared_locks) {
    EXPECT_EQ(error_of([&] { shared_mutex{client, "page"}; }), errc::not_supported);
    return;
  }
  shared_mutex page{client, "page", lasting()};
  shared_mutex theirs{open("other"), "page", lasting()};
  {
    const std::shared_lock reader{page};
    const std::shared_lock other_reader{theirs, 5s};
    EXPECT_TRUE(other_reader.owns_lock());
    ASSERT_TRUE(page.current());
    EXPECT_EQ(page.current()->mode(), lock_mode::shared);
    EXPECT_FALSE(theirs.try_lock());
  }
  {
    const std::unique_lock writer{page};
    EXPECT_EQ(page.current()->mode(), lock_mode::exclusive);
    EXPECT_FALSE(theirs.try_lock_shared());
    EXPECT_FALSE(theirs.try_lock_shared_for(10ms));
  }
  EXPECT_TRUE(becomes_free(client, "page"));
}

class RecursiveMutex : public contract_test {};

TEST_F(RecursiveMutex, CountsEntriesAndGivesBackAfterTheLast) {
  const auto client = open();
  recursive_mutex lock{client, "door", lasting()};

  auto outer = std::make_optional(lock.acquire());
  auto inner = std::make_optional(lock.acquire());
  EXPECT_EQ(lock.depth(), 2U);
  outer.reset();  // in whatever order
  EXPECT_EQ(lock.depth(), 1U);
  EXPECT_TRUE(inner->valid());
  EXPECT_EQ(holder_count(client, "door"), 1U);

  inner.reset();
  EXPECT_EQ(lock.depth(), 0U);
  EXPECT_TRUE(becomes_free(client, "door"));
}

TEST_F(RecursiveMutex, LetsNoOtherThreadReenter) {
  recursive_mutex lock{open(), "door", lasting()};
  const auto held = lock.acquire();

  background elsewhere([&] { return lock.try_acquire().has_value(); });

  EXPECT_FALSE(elsewhere.get());
}

TEST_F(RecursiveMutex, ReleaseOfAnInnerEntryKeepsTheOuterOne) {
  mutex others{open("other"), "door", lasting()};
  recursive_mutex lock{open(), "door", lasting()};
  auto outer = lock.acquire();
  auto inner = lock.acquire();

  EXPECT_EQ(inner.release(), release_result::released);

  EXPECT_TRUE(outer.valid());
  EXPECT_FALSE(others.try_acquire());
  EXPECT_EQ(outer.release(), release_result::released);
  EXPECT_TRUE(others.try_acquire_for(patience));
}

TEST_F(RecursiveMutex, ALeaseThatWasGivenBackStillShowsItsPass) {
  if (!claims().fencing) return;
  recursive_mutex lock{open(), "door", lasting()};
  auto outer = lock.acquire();
  auto inner = lock.acquire();
  const auto pass = inner.fence_pass();

  inner.release();
  outer.release();

  EXPECT_EQ(inner.fence_pass(), pass);
  EXPECT_EQ(outer.fence_pass(), pass);
}

TEST_F(RecursiveMutex, RefusesReentryOnceTheLeaseIsLost) {
  recursive_mutex lock{open(), "door", ending()};
  const auto outer = lock.acquire();
  ASSERT_TRUE(becomes_lost(outer));

  EXPECT_EQ(error_of([&] { (void)lock.acquire(); }), errc::lease_lost);
  EXPECT_EQ(error_of([&] { (void)lock.try_acquire(); }), errc::lease_lost);
  EXPECT_EQ(error_of([&] { lock.lock(); }), errc::lease_lost);
}

TEST_F(RecursiveMutex, CanBeTakenAnewAfterALostHoldHasEnded) {
  recursive_mutex lock{open(), "door", ending()};
  {
    const auto lost_hold = lock.acquire();
    ASSERT_TRUE(becomes_lost(lost_hold));
  }

  const auto fresh = lock.try_acquire_for(patience);

  ASSERT_TRUE(fresh);
  EXPECT_TRUE(fresh->valid());
  EXPECT_EQ(lock.depth(), 1U);
}

TEST_F(RecursiveMutex, ModelsStdLockables) {
  const auto client = open();
  recursive_mutex lock{client, "door", lasting()};
  {
    const std::scoped_lock outer{lock};
    const std::unique_lock inner{lock, 1s};
    EXPECT_TRUE(inner.owns_lock());
    EXPECT_EQ(lock.depth(), 2U);
    EXPECT_TRUE(lock.current()->valid());
  }
  EXPECT_EQ(lock.depth(), 0U);
  EXPECT_TRUE(becomes_free(client, "door"));
}

TEST_F(RecursiveMutex, AndMutexOfOneNameExcludeEachOther) {
  const auto client = open();
  recursive_mutex recursive{client, "door", lasting()};
  mutex plain{client, "door", lasting()};

  const auto held = recursive.acquire();

  EXPECT_FALSE(plain.try_acquire());
}

}  // namespace
}  // namespace sallyport::contract
