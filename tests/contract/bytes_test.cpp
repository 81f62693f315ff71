#include "tests/contract/kit/contract_test.hpp"

#include <algorithm>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Every byte that is allowed, and as many of them as are allowed, through everything that a name, a
// label or a value goes through on its way: acquire, queue, who, list, hand-off, break, election.
namespace sallyport::contract {
namespace {

std::string repeated(std::string_view piece, std::size_t bytes) {
  std::string all;
  while (all.size() + piece.size() <= bytes) all += piece;
  return all;
}

std::string every_byte(std::size_t bytes) {
  std::string all(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) all[i] = static_cast<char>(i % 256);
  return all;
}

/// What a store could take for something of its own: escapes, wildcards, tags, paths, statements.
std::vector<std::string> odd_names() {
  std::string printable;  // all of ASCII that is no control character
  for (char each = ' '; each < '\x7f'; ++each) printable += each;
  std::string two_bytes;  // U+00A0 to U+00FF: what Latin-1 has as single bytes
  for (int each = 0xa0; each < 0x100; ++each) {
    two_bytes += static_cast<char>(0xc0 | (each >> 6));
    two_bytes += static_cast<char>(0x80 | (each & 0x3f));
  }
  return {
      printable,
      two_bytes,
      repeated("\xf0\x9f\x94\x92", lock_name::max_bytes),  // 63 of four bytes each
      repeated("%", lock_name::max_bytes),
      repeated("\\", lock_name::max_bytes),
      repeated("'\"`", lock_name::max_bytes),
      repeated("/", lock_name::max_bytes),
      std::string(lock_name::max_bytes, ' '),
      "{",
      "}{",
      "{}{a}",
      "{a}{b}",
      "a{{b}}",
      "..",
      "a/../b",
      "%00%2f%5C",
      "'; DROP TABLE lock; --",
      "$1 :name ? @x",
      "\xef\xbf\xbd\xef\xbb\xbf\xe2\x80\xae\xf4\x8f\xbf\xbf"};  // U+FFFD, BOM, right-to-left, U+10FFFF
}

class Bytes : public contract_test {};

TEST_F(Bytes, OfNamesComeThroughQueueAndHandOff) {
  const auto one = open("one");
  const auto two = open("two");
  std::list<mutex> locks;
  std::vector<lease> held;
  std::list<background<std::optional<lease>>> next;
  for (const std::string& name : odd_names()) {
    auto got = locks.emplace_back(one, name, lasting()).try_acquire();
    ASSERT_TRUE(got) << testing::PrintToString(name);
    held.push_back(std::move(*got));
    mutex& theirs = locks.emplace_back(two, name, lasting());
    EXPECT_FALSE(theirs.try_acquire()) << testing::PrintToString(name);
    next.emplace_back([&theirs] { return theirs.try_acquire_for(patience); });
  }

  for (const std::string& name : odd_names()) {
    SCOPED_TRACE(testing::PrintToString(name));
    if (store().shows_waiters || name == odd_names().back()) {
      ASSERT_TRUE(waiters_become(one, name, 1));
    }
    const auto seen = one.who(name);
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->name, name);
    EXPECT_EQ(seen->holders.at(0).label, "one");
  }
  for (lease& each : held) EXPECT_EQ(each.release(), release_result::released);

  const auto names = odd_names();
  auto name = names.begin();
  for (auto& each : next) {
    auto got = each.get();
    ASSERT_TRUE(got) << testing::PrintToString(*name);
    EXPECT_EQ(got->name().text(), *name++);
    EXPECT_EQ(got->release(), release_result::released);
  }
}

TEST_F(Bytes, OfNamesAreListedAndFoundByTheirBeginning) {
  if (!claims().lists) return;
  const auto client = open();
  std::list<mutex> locks;
  std::vector<lease> held;
  for (const std::string& name : odd_names()) {
    auto got = locks.emplace_back(client, name, lasting()).try_acquire();
    ASSERT_TRUE(got) << name;
    held.push_back(std::move(*got));
  }

  std::vector<std::string> expected = odd_names();
  std::ranges::sort(expected);
  std::vector<std::string> listed;
  for (const lock_info& each : client.list()) listed.push_back(each.name);
  EXPECT_EQ(listed, expected);
  for (const std::string_view beginning :
       {"%", "{", "'", "\\", "..", "_", "*", "\xf0\x9f\x94\x92"}) {
    std::vector<std::string> found;
    for (const lock_info& each : client.list(beginning)) found.push_back(each.name);
    std::vector<std::string> right = expected;
    std::erase_if(right, [&](const std::string& each) { return !each.starts_with(beginning); });
    EXPECT_EQ(found, right) << beginning;
  }
}

TEST_F(Bytes, OfNamesFindTheLockThatIsToBeBroken) {
  const auto client = open();
  for (const std::string& name : odd_names()) {
    SCOPED_TRACE(testing::PrintToString(name));
    mutex lock{client, name, lasting()};
    const auto held = lock.try_acquire();
    ASSERT_TRUE(held);

    client.break_lock(name, observed_token(client, name), break_style::at_once);

    EXPECT_TRUE(becomes_free(client, name));
  }
}

TEST_F(Bytes, OfLabelsAreShownOfHoldersAndWaiters) {
  // Labels have no bound, but memcached's records keep so much of them.
  constexpr std::size_t shown_everywhere = 1024;
  const std::string long_one = every_byte(shown_everywhere);
  const std::string other_one = "w" + every_byte(shown_everywhere - 1);
  const auto holder = open(long_one);
  const auto waiter = open(other_one);
  mutex mine{holder, "door", lasting()};
  mutex theirs{waiter, "door", lasting()};
  auto held = mine.acquire();
  background next([&] { return theirs.try_acquire_for(patience); });
  ASSERT_TRUE(waiters_become(holder, "door", 1));

  const auto seen = open("watching").who("door").value();
  EXPECT_EQ(seen.holders.at(0).label, long_one);
  if (store().shows_waiters) {
    ASSERT_EQ(seen.waiters.size(), 1U);
    EXPECT_EQ(seen.waiters[0].label, other_one);
  }
  held.release();
  const auto theirs_now = next.get();
  ASSERT_TRUE(theirs_now);
  EXPECT_EQ(holder.who("door").value().holders.at(0).label, other_one);
}

TEST_F(Bytes, OfTheLongestValueReachCandidatesAndObservers) {
  if (!claims().elections) return;
  const std::string longest = every_byte(65'536);
  const std::string other("\0short\0", 7);
  election mine{open("one"), "{lead}/er'%\\", lasting()};
  election theirs{open("two"), "{lead}/er'%\\", lasting()};

  auto leads = mine.campaign(longest);
  EXPECT_EQ(theirs.leader().value().value, longest);
  background candidate([&] { return theirs.try_campaign_for(other, patience); });
  ASSERT_TRUE(waiters_become(open("watching"), "{lead}/er'%\\", 1));
  leads.release();

  auto next = candidate.get();
  ASSERT_TRUE(next);
  EXPECT_EQ(mine.leader().value().value, other);
  theirs.proclaim(*next, longest);
  EXPECT_EQ(mine.leader().value().value, longest);
}

}  // namespace
}  // namespace sallyport::contract
