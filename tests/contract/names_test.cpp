#include "tests/contract/kit/contract_test.hpp"

#include <array>
#include <cstdint>
#include <list>
#include <set>
#include <string>
#include <vector>

namespace sallyport::contract {
namespace {

class Names : public contract_test {};

TEST_F(Names, ThatBeginAlikeAreHeldTogether) {
  const auto client = open();
  const auto other = open("other");
  std::list<mutex> locks;
  std::vector<lease> held;

  for (const char* name : {"a/b", "a", "a/b/c", "a/", "a/b/", "/", "//", "/a", "a//b", "ab"}) {
    const auto& via = held.size() % 2 == 0 ? client : other;
    auto got = locks.emplace_back(via, name, lasting()).try_acquire();
    ASSERT_TRUE(got) << name;
    held.push_back(std::move(*got));
  }

  EXPECT_TRUE(lists(client, held.size()));
  EXPECT_EQ(client.who("a").value().holders.size(), 1U);
  EXPECT_TRUE(client.who("a").value().waiters.empty());
}

TEST_F(Names, ThatBeginAlikeAreTakenByLockAll) {
  const auto client = open();
  mutex a{client, "a", lasting()};
  mutex ab{client, "a/b", lasting()};
  mutex abc{client, "a/b/c", lasting()};

  const auto all = try_lock_all_for(patience, abc, a, ab);

  ASSERT_TRUE(all);
  EXPECT_TRUE(all->valid());
}

TEST_F(Names, AreComparedByteByByte) {
  const auto client = open();
  std::list<mutex> locks;
  std::vector<lease> held;

  // Case, accents composed and decomposed, trailing blanks, and what stores like to escape.
  for (const char* name : {"Door",        "door",         "DOOR",
                           "d\xc3\xb3or", "do\xcc\x81or", "door ",
                           " door",       "door\xc2\xa0", "%64oor",
                           "do%6Fr",      "door*",        "do?r",
                           "door#1",      "{door}",       "door:",
                           "door\\",      "door'",        "door\"",
                           "door;--",     "door$",        "\xf0\x9f\x9a\xaa"}) {
    auto got = locks.emplace_back(client, name, lasting()).try_acquire();
    ASSERT_TRUE(got) << name;
    held.push_back(std::move(*got));
    EXPECT_FALSE(locks.back().try_acquire()) << name;
  }

  if (!claims().lists) return;
  std::vector<std::string> listed;
  for (const lock_info& each : client.list()) listed.push_back(each.name);
  std::set<std::string> expected;
  for (const lease& each : held) expected.insert(each.name().text());
  EXPECT_EQ(listed, std::vector<std::string>(expected.begin(), expected.end()));
}

TEST_F(Names, OfEveryLengthUpToTheBoundAreLocks) {
  const auto client = open();
  for (const std::size_t length : {1U, 2U, 127U, 128U, 200U, 254U, 255U}) {
    const std::string name(length, 'n');
    mutex lock{client, name, lasting()};
    const auto held = lock.try_acquire();
    EXPECT_TRUE(held) << length;
    EXPECT_TRUE(client.who(name)) << length;
  }
  std::string longest;
  while (longest.size() + 3 <= lock_name::max_bytes) longest += "\xe2\x82\xac";
  mutex lock{client, longest, lasting()};
  mutex shorter{client, longest.substr(3), lasting()};
  EXPECT_TRUE(lock.try_acquire());
  EXPECT_TRUE(shorter.try_acquire());
}

TEST_F(Names, ThatAreNoneAreRefusedBeforeTheStoreHearsOfThem) {
  const auto client = open();
  using namespace std::string_literals;
  const std::array bad{
      ""s,
      std::string(256, 'x'),
      "line\nbreak"s,
      "tab\t"s,
      "nul\0inside"s,
      "\x1b[31m"s,
      "delete\x7f"s,
      "\xff\xfe"s,
      "broken \xc3"s,
      "overlong \xc0\xaf"s,
      "surrogate \xed\xa0\x80"s,
      "too large \xf4\x90\x80\x80"s,
      "continuation \x80"s,
  };

  for (const std::string& name : bad) {
    EXPECT_EQ(error_of([&] {
                mutex{client, name};
              }),
              errc::bad_name)
        << testing::PrintToString(name);
    EXPECT_EQ(error_of([&] { (void)client.who(name); }), errc::bad_name)
        << testing::PrintToString(name);
    std::string why;
    EXPECT_FALSE(lock_name::acceptable(name, &why));
    EXPECT_NE(why, "");
  }
  EXPECT_TRUE(lists(client, 0));
}

/// A small generator of its own: the same names in every run.
class name_maker {
 public:
  std::string next() {
    // What stores use as separators, wildcards and escapes, mixed with a few letters so that
    // prefixes are shared often.
    static constexpr std::array<std::string_view, 20> pieces{
        "a", "b", "A", "/", "//", ".", "..",       "%",         "%2F", ":",
        "{", "}", "*", "?", "\\", " ", "\xc3\xa9", "e\xcc\x81", "-",   "_"};
    std::string name;
    const std::uint64_t length = 1 + draw() % 6;
    for (std::uint64_t i = 0; i < length; ++i) name += pieces[draw() % pieces.size()];
    return name;
  }

 private:
  std::uint64_t draw() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ >> 11;
  }

  std::uint64_t state_ = 0x5a11'9027'0000'0001;
};

TEST_F(Names, ThatDifferNeverMeet) {
  constexpr std::size_t count = 150;
  const auto client = open();
  name_maker maker;
  std::set<std::string> names;
  while (names.size() < count) names.insert(maker.next());

  std::list<mutex> locks;
  std::vector<lease> held;
  for (const std::string& name : names) {
    auto got = locks.emplace_back(client, name, lasting()).try_acquire();
    ASSERT_TRUE(got) << name;
    held.push_back(std::move(*got));
  }

  if (claims().lists) {
    std::vector<std::string> listed;
    for (const lock_info& each : client.list()) listed.push_back(each.name);
    EXPECT_EQ(listed, std::vector<std::string>(names.begin(), names.end()));
  }
  for (const lease& each : held) {
    EXPECT_TRUE(each.valid());
    EXPECT_EQ(holder_count(client, each.name()), 1U) << each.name().text();
  }
  held.clear();
  EXPECT_TRUE(eventually([&] { return static_cast<bool>(lists(client, 0)); }));
}

}  // namespace
}  // namespace sallyport::contract
