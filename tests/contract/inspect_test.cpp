#include "tests/contract/kit/contract_test.hpp"

#include <list>
#include <string>
#include <unistd.h>
#include <vector>

namespace sallyport::contract {
namespace {

class Inspect : public contract_test {};

std::vector<std::string> names_of(const std::vector<lock_info>& page) {
  std::vector<std::string> names;
  for (const lock_info& each : page) names.push_back(each.name);
  return names;
}

TEST_F(Inspect, AFreeNameIsNobodys) {
  const auto client = open();

  EXPECT_FALSE(client.who("door"));
  EXPECT_TRUE(lists(client, 0));
}

TEST_F(Inspect, WhoSaysWhoHoldsAndForHowLong) {
  const auto client = open("the holder");
  mutex lock{client, "door", lasting()};
  const auto held = lock.acquire();

  const auto seen = open("other").who("door");

  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->name, "door");
  EXPECT_EQ(seen->kind, lock_kind::mutex);
  EXPECT_EQ(seen->closed_for, 0ms);
  EXPECT_TRUE(seen->waiters.empty());
  ASSERT_EQ(seen->holders.size(), 1U);
  const holder_info& holder = seen->holders[0];
  EXPECT_EQ(holder.label, "the holder");
  EXPECT_EQ(holder.pid, ::getpid());
  EXPECT_NE(holder.host, "");
  EXPECT_EQ(holder.value, "");
  EXPECT_EQ(holder.mode, lock_mode::exclusive);
  EXPECT_TRUE(holder.claimed);
  EXPECT_GT(holder.remaining, 0ms);
  EXPECT_LE(holder.remaining, held.length());
  EXPECT_GE(holder.held_for, 0ms);
  EXPECT_TRUE(!claims().fencing || holder.token == held.token());
}

TEST_F(Inspect, LabelsMayHaveAnyBytes) {
  using namespace std::string_literals;
  for (const std::string& label : {"a\0b"s, "\xff\xfe%41%s"s, " two  words\n"s, "-"s}) {
    SCOPED_TRACE(testing::PrintToString(label));
    mutex lock{open(label), "door", lasting()};
    const auto held = lock.acquire();

    EXPECT_EQ(open("other").who("door").value().holders.at(0).label, label);
  }
}

TEST_F(Inspect, WhoShowsReadersAndPermitsEach) {
  const auto client = open();
  if (claims().shared_locks) {
    shared_mutex page{client, "page", lasting()};
    const auto one = page.acquire_shared();
    const auto two = page.acquire_shared();
    const auto seen = client.who("page");
    ASSERT_TRUE(seen);
    ASSERT_EQ(seen->holders.size(), 2U);
    EXPECT_EQ(seen->holders[1].mode, lock_mode::shared);
  }
  if (claims().semaphores) {
    semaphore pool{client, "pool", 3, lasting()};
    const auto one = pool.acquire();
    const auto two = pool.acquire();
    const auto seen = client.who("pool");
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->permits, 3U);
    ASSERT_EQ(seen->holders.size(), 2U);
    EXPECT_NE(seen->holders[0].token, seen->holders[1].token)
        << "break_lock could not tell them apart";
  }
  EXPECT_TRUE(eventually([&] { return static_cast<bool>(lists(client, 0)); }));
}

TEST_F(Inspect, WhoShowsWaitersAndHowLongTheyWait) {
  if (!store().shows_waiters) return;
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  mutex wanted{open("the waiter"), "door", lasting()};
  auto held = gate.acquire();
  background waiter([&] { return wanted.try_acquire_for(patience).has_value(); });
  ASSERT_TRUE(waiters_become(watching, "door", 1));

  EXPECT_TRUE(
      eventually([&] { return watching.who("door").value().waiters.at(0).waited >= 20ms; }));
  const auto seen = watching.who("door");
  held.release();

  const waiter_info& first = seen->waiters.at(0);
  EXPECT_EQ(first.label, "the waiter");
  EXPECT_EQ(first.pid, ::getpid());
  EXPECT_EQ(first.mode, lock_mode::exclusive);
  EXPECT_TRUE(waiter.get());
}

TEST_F(Inspect, WhoCountsTheWaitersInsideTheHoldersProcess) {
  const auto client = open();
  mutex lock{client, "door", {.lease_length = 3 * short_lease(), .local_turns = 8}};
  std::optional<lease> held = lock.acquire();
  std::vector<background<bool>> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] { return lock.try_acquire_for(patience).has_value(); });
  }

  EXPECT_TRUE(
      eventually([&] { return client.who("door").value().holders.at(0).local_waiters == 3; }));

  held.reset();
  for (auto& waiter : waiters) EXPECT_TRUE(waiter.get());
}

TEST_F(Inspect, WhoCountsTheCallersBehindAWaiterOfAnotherProcess) {
  if (!store().shows_waiters) return;
  client_options quick;
  quick.heartbeat = 200ms;
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  auto held = gate.acquire();
  const auto crowded = open("crowded", quick);
  mutex wanted{crowded, "door", {.lease_length = 60s, .local_turns = 8}};
  std::vector<background<bool>> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] { return wanted.try_acquire_for(patience).has_value(); });
  }

  EXPECT_TRUE(eventually([&] {
    const auto seen = watching.who("door").value();
    return seen.waiters.size() == 1 && seen.waiters[0].local_waiters == 2;
  })) << "one contender stands in the queue, with two callers behind it";

  held.release();
  for (auto& waiter : waiters) EXPECT_TRUE(waiter.get());
}

TEST_F(Inspect, ListGoesPageByPageInByteOrder) {
  const auto client = open();
  if (!claims().lists) {
    EXPECT_TRUE(lists(client, 0));
    return;
  }
  const std::vector<std::string> names{"page/A", "page/B", "page/Z",
                                       "page/a", "page/b", "page/\xc3\xa9"};
  std::list<mutex> locks;
  std::vector<lease> held;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    held.push_back(locks.emplace_back(client, *name, lasting()).acquire());
  }
  mutex outside{client, "pag", lasting()};
  mutex behind{client, "pagf", lasting()};
  held.push_back(outside.acquire());
  held.push_back(behind.acquire());

  std::vector<std::string> all;
  std::string after;
  std::vector<std::size_t> sizes;
  for (;;) {
    const auto page = client.list("page/", after, 4);
    if (page.empty()) break;
    sizes.push_back(page.size());
    for (const auto& name : names_of(page)) all.push_back(name);
    after = all.back();
  }

  EXPECT_EQ(all, names);
  EXPECT_EQ(sizes, (std::vector<std::size_t>{4, 2}));
  EXPECT_TRUE(lists(client, names.size() + 2));
  EXPECT_EQ(names_of(client.list("pag", "page/a")),
            (std::vector<std::string>{"page/b", "page/\xc3\xa9", "pagf"}));
  EXPECT_TRUE(client.list("nothing").empty());
}

TEST_F(Inspect, ListSaysWhatWhoSays) {
  const auto client = open("holder");
  if (!claims().lists) {
    EXPECT_TRUE(lists(client, 1));
    return;
  }
  mutex lock{client, "door", lasting()};
  const auto held = lock.acquire();

  const auto page = client.list();

  ASSERT_EQ(page.size(), 1U);
  EXPECT_EQ(page[0].name, "door");
  EXPECT_EQ(page[0].kind, lock_kind::mutex);
  ASSERT_EQ(page[0].holders.size(), 1U);
  EXPECT_EQ(page[0].holders[0].label, "holder");
}

class BreakLock : public contract_test {};

TEST_F(BreakLock, SafelyKeepsEverybodyOutUntilTheOldDeadline) {
  const auto admin = open("admin");
  const auto length = 2 * short_lease();
  mutex mine{open("holder"), "door", {.lease_length = length, .local_turns = 1}};
  mutex wanted{open("next"), "door", lasting()};
  const auto broken = mine.acquire();

  admin.break_lock("door", admin.who("door").value().holders.at(0).token, break_style::safe);
  const auto seen = admin.who("door");
  ASSERT_TRUE(becomes_lost(broken));
  const auto next = wanted.try_acquire_for(patience);
  const auto entered = lease_clock::now();

  ASSERT_TRUE(next);
  EXPECT_GE(entered, broken.deadline());
  ASSERT_TRUE(seen);
  EXPECT_TRUE(seen->holders.empty());
  EXPECT_GT(seen->closed_for, 0ms);
  EXPECT_LE(seen->closed_for, length);
  EXPECT_TRUE(!claims().fencing || next->token() > broken.token());
}

TEST_F(BreakLock, SafelyIsNotUndoneByTheHoldersRelease) {
  const auto admin = open("admin");
  mutex mine{open("holder"), "door", {.lease_length = 2 * short_lease(), .local_turns = 1}};
  mutex wanted{open("next"), "door", lasting()};
  auto broken = mine.acquire();
  const auto deadline = broken.deadline();
  admin.break_lock("door", admin.who("door").value().holders.at(0).token, break_style::safe);

  EXPECT_NE(broken.release(), release_result::unknown);
  const auto next = wanted.try_acquire_for(patience);

  ASSERT_TRUE(next);
  EXPECT_GE(lease_clock::now(), deadline);
}

TEST_F(BreakLock, SafelyLeavesNothingBehind) {
  const auto admin = open("admin");
  mutex mine{open("holder"), "door", ending()};
  const auto broken = mine.acquire();

  admin.break_lock("door", admin.who("door").value().holders.at(0).token);

  EXPECT_TRUE(becomes_free(admin, "door"));
  EXPECT_GE(lease_clock::now(), broken.deadline());
}

TEST_F(BreakLock, AtOnceLetsTheNextWaiterIn) {
  const auto admin = open("admin");
  mutex mine{open("holder"), "door", lasting()};
  mutex wanted{open("next"), "door", lasting()};
  const auto broken = mine.acquire();
  background next([&] { return wanted.try_acquire_for(patience); });
  ASSERT_TRUE(waiters_become(admin, "door", 1));

  admin.break_lock("door", admin.who("door").value().holders.at(0).token, break_style::at_once);
  const auto entered = next.get();

  ASSERT_TRUE(entered);
  EXPECT_LT(lease_clock::now(), broken.deadline()) << "that would have been safe";
  EXPECT_TRUE(entered->valid());
}

TEST_F(BreakLock, ComparesTheTokenThatWasSeen) {
  const auto admin = open("admin");
  mutex mine{open("holder"), "door", lasting()};
  auto first = mine.acquire();
  const auto seen = admin.who("door").value().holders.at(0).token;
  first.release();
  const auto second = mine.acquire();

  EXPECT_EQ(error_of([&] { admin.break_lock("door", seen, break_style::safe); }),
            errc::token_mismatch);
  EXPECT_EQ(error_of([&] { admin.break_lock("door", seen, break_style::at_once); }),
            errc::token_mismatch);

  EXPECT_TRUE(second.valid());
  EXPECT_EQ(holder_count(admin, "door"), 1U);
}

TEST_F(BreakLock, SaysWhenThereIsNothingToBreak) {
  const auto admin = open("admin");

  EXPECT_EQ(error_of([&] { admin.break_lock("door", fencing_token{1}); }), errc::no_such_lock);
  EXPECT_EQ(error_of([&] { admin.break_lock("door", fencing_token{1}, break_style::at_once); }),
            errc::no_such_lock);
}

TEST_F(BreakLock, TakesOnePermitAndLeavesTheOthers) {
  const auto admin = open("admin");
  if (!claims().semaphores) {
    EXPECT_EQ(error_of([&] { semaphore{admin, "pool", 2}; }), errc::not_supported);
    return;
  }
  // A holder that does not listen hears of it at its next renewal: after two seconds.
  const lock_options renewed{.lease_length = 6s, .local_turns = 1};
  semaphore pool{open("one"), "pool", 2, renewed};
  semaphore other{open("two"), "pool", 2, renewed};
  const auto broken = pool.acquire();
  const auto kept = other.acquire();
  const auto seen = admin.who("pool");
  ASSERT_TRUE(seen);
  ASSERT_EQ(seen->holders.size(), 2U);
  const holder_info& first = seen->holders[seen->holders[0].label == "one" ? 0 : 1];

  admin.break_lock("pool", first.token, break_style::at_once);

  EXPECT_TRUE(becomes_lost(broken));
  EXPECT_TRUE(kept.valid());
  EXPECT_EQ(holder_count(admin, "pool"), 1U);
  EXPECT_TRUE(other.try_acquire_for(patience));
}

}  // namespace
}  // namespace sallyport::contract
