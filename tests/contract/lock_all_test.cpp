#include "tests/contract/kit/contract_test.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <stop_token>

namespace sallyport::contract {
namespace {

class LockAll : public contract_test {};

TEST_F(LockAll, TakesAllInTheOrderInWhichTheyWereGiven) {
  const auto client = open();
  mutex c{client, "c", lasting()};
  mutex a{client, "a", lasting()};
  mutex b{client, "b", lasting()};

  auto all = lock_all(c, a, b);

  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].name(), lock_name("c"));
  EXPECT_EQ(all[1].name(), lock_name("a"));
  EXPECT_EQ(all[2].name(), lock_name("b"));
  EXPECT_TRUE(all.valid());
  EXPECT_TRUE(lists(client, 3U));
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_LE(all.deadline(), all[i].deadline());
  all.ensure_valid();
}

TEST_F(LockAll, GivesAllBackTogether) {
  const auto client = open();
  mutex a{client, "a", lasting()};
  mutex b{client, "b", lasting()};
  {
    const auto all = lock_all(a, b);
    EXPECT_TRUE(lists(client, 2U));
  }
  EXPECT_TRUE(eventually([&] { return static_cast<bool>(lists(client, 0)); }));

  auto again = lock_all(b, a);
  again.release();
  EXPECT_FALSE(again.valid());
  EXPECT_TRUE(eventually([&] { return static_cast<bool>(lists(client, 0)); }));
}

TEST_F(LockAll, TakesADeadlineAndAStopToken) {
  const auto client = open();
  mutex a{client, "a", lasting()};
  mutex b{client, "b", lasting()};
  std::stop_source stop;

  EXPECT_EQ(lock_all(stop.get_token(), a, b).value().size(), 2U);
  EXPECT_EQ(try_lock_all(b, a).value().size(), 2U);
  EXPECT_TRUE(try_lock_all_for(patience, stop.get_token(), a, b));
  EXPECT_TRUE(try_lock_all_until(lease_clock::now() + patience, a, b));
  EXPECT_TRUE(try_lock_all_until(lease_clock::now() + patience, stop.get_token(), a));

  mutex taken{open("other"), "b", lasting()};
  const auto held = taken.acquire();
  EXPECT_FALSE(try_lock_all(a, b));
  EXPECT_FALSE(try_lock_all_until(lease_clock::now() + 20ms, a, b));
  stop.request_stop();
  EXPECT_FALSE(lock_all(stop.get_token(), a, b));
  EXPECT_FALSE(try_lock_all_for(patience, stop.get_token(), a, b));
  EXPECT_TRUE(becomes_free(client, "a"));
}

TEST_F(LockAll, HoldsNothingWhenItCouldNotHaveAll) {
  const auto client = open();
  mutex taken{open("other"), "b", lasting()};
  const auto held = taken.acquire();
  mutex a{client, "a", lasting()};
  mutex b{client, "b", lasting()};
  mutex c{client, "c", lasting()};

  EXPECT_FALSE(try_lock_all_for(60ms, a, b, c));

  EXPECT_TRUE(becomes_free(client, "a"));
  EXPECT_TRUE(becomes_free(client, "c"));
  EXPECT_TRUE(waiters_become(client, "b", 0));
  EXPECT_TRUE(held.valid());
}

TEST_F(LockAll, CallersWithOppositeOrdersDoNotWaitForEachOther) {
  std::atomic<int> inside{0};
  std::atomic<int> worst{0};
  const auto work = [&](std::string_view label, const char* first, const char* second) {
    const auto client = open(label);
    mutex one{client, first, lasting()};
    mutex two{client, second, lasting()};
    for (int i = 0; i < 20; ++i) {
      const auto both = try_lock_all_for(2 * patience, one, two);
      if (!both) return false;
      const int now = ++inside;
      if (now > worst) worst = now;
      --inside;
    }
    return true;
  };

  background forth([&] { return work("forth", "a", "b"); });
  background back([&] { return work("back", "b", "a"); });

  EXPECT_TRUE(forth.get());
  EXPECT_TRUE(back.get());
  EXPECT_EQ(worst.load(), 1);
}

TEST_F(LockAll, TakesLocksOfSeveralClientsAndStores) {
  const auto other_store = store().make();
  const auto elsewhere = client::open(other_store->address());
  mutex here{open(), "same name", lasting()};
  mutex there{elsewhere, "same name", lasting()};

  const auto both = lock_all(here, there);

  EXPECT_TRUE(both.valid());
  EXPECT_EQ(both.size(), 2U);
}

TEST_F(LockAll, RefusesANameThatIsGivenTwice) {
  const auto client = open();
  mutex a{client, "a", lasting()};
  mutex same{client, "a", lasting()};

  EXPECT_EQ(error_of([&] { (void)try_lock_all_for(patience, a, a); }), errc::would_deadlock);
  EXPECT_EQ(error_of([&] { (void)try_lock_all_for(patience, a, same); }), errc::would_deadlock);
  EXPECT_TRUE(becomes_free(client, "a"));
}

TEST_F(LockAll, RefusesANameThatThisClientHolds) {
  const auto client = open();
  mutex a{client, "a", lasting()};
  mutex b{client, "b", lasting()};
  const auto held = b.acquire();

  EXPECT_EQ(error_of([&] { (void)try_lock_all_for(patience, a, b); }), errc::would_deadlock);

  EXPECT_TRUE(becomes_free(client, "a"));
  EXPECT_TRUE(held.valid());
}

TEST_F(LockAll, SaysWhenAnyOfThemIsLost) {
  const auto client = open();
  const auto admin = open("admin");
  mutex a{client, "a", {.lease_length = 2 * short_lease(), .local_turns = 1}};
  mutex b{client, "b", lasting()};
  const auto both = lock_all(a, b);
  const auto gone = both.lost();
  EXPECT_FALSE(gone.stop_requested());

  admin.break_lock("a", client.who("a").value().holders.at(0).token, break_style::at_once);

  EXPECT_TRUE(eventually([&] { return gone.stop_requested(); }));
  EXPECT_FALSE(both.valid());
  EXPECT_TRUE(both[1].valid());
  EXPECT_EQ(error_of([&] { both.ensure_valid(); }), errc::lease_lost);
}

// The first lease may grow old while the second is waited for.
TEST_F(LockAll, ReturnsOnlyWhileEveryLeaseHasAThirdOfItsLengthLeft) {
  const auto length = 2 * short_lease();
  mutex blocking{open("other"), "b", {.lease_length = length * 5 / 6, .renew = renewal::never}};
  const auto client = open();
  mutex a{client, "a", {.lease_length = length, .renew = renewal::never, .local_turns = 1}};
  mutex b{client, "b", lasting()};
  const auto in_the_way = blocking.acquire();

  const auto both = try_lock_all_for(patience, a, b);

  ASSERT_TRUE(both);
  EXPECT_GE((*both)[0].deadline(), in_the_way.deadline() + length / 3);
}

TEST_F(LockAll, OfOneIsAMutex) {
  const auto client = open();
  mutex a{client, "a", lasting()};

  const auto one = lock_all(a);

  EXPECT_EQ(one.size(), 1U);
  EXPECT_TRUE(one.valid());
  EXPECT_EQ(holder_count(client, "a"), 1U);
}

}  // namespace
}  // namespace sallyport::contract
