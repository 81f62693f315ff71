#include "sim/redis/numbers.hpp"
#include "sim/redis/sha1.hpp"
#include "sim/redis/values.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace sallyport::sim::redis {
namespace {

TEST(Sha1, KnowsThePublishedVectors) {
  EXPECT_EQ(sha1_hex(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  EXPECT_EQ(sha1_hex("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(sha1_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
  EXPECT_EQ(sha1_hex(std::string(1'000'000, 'a')), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

TEST(Numbers, ReadsIntegersStrictly) {
  EXPECT_EQ(parse_integer("0"), 0);
  EXPECT_EQ(parse_integer("-17"), -17);
  EXPECT_EQ(parse_integer("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(parse_integer("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  for (const auto* wrong : {"", "-", "+1", "01", "-0", " 1", "1 ", "1.0", "0x1", "1a",
                            "9223372036854775808", "-9223372036854775809"}) {
    EXPECT_FALSE(parse_integer(wrong).has_value()) << wrong;
  }
}

TEST(Numbers, ReadsScoresAsStrtodDoes) {
  EXPECT_EQ(parse_double("1.5e3"), 1500);
  EXPECT_EQ(parse_double("0x10"), 16);
  EXPECT_EQ(parse_double("+3"), 3);
  EXPECT_EQ(parse_double("-inf"), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(parse_double("12345678901234567890"), 12345678901234567890.0);
  for (const auto* wrong : {"", " 1", "1 ", "x", "nan", "1e400", "1e-400"}) {
    EXPECT_FALSE(parse_double(wrong).has_value()) << wrong;
  }
}

TEST(Numbers, ReadsLimitsOfRanges) {
  EXPECT_EQ(parse_score_limit("5")->value, 5);
  EXPECT_FALSE(parse_score_limit("5")->exclusive);
  EXPECT_TRUE(parse_score_limit("(5")->exclusive);
  EXPECT_EQ(parse_score_limit("")->value, 0);
  EXPECT_FALSE(parse_score_limit("nan").has_value());
  EXPECT_FALSE(parse_score_limit("(x").has_value());
}

TEST(Numbers, WritesSeventeenDigits) {
  EXPECT_EQ(format_double(0.1), "0.10000000000000001");
  EXPECT_EQ(format_double(9007199254740992.0), "9007199254740992");
  EXPECT_EQ(format_double(1e17), "1e+17");
  EXPECT_EQ(format_double(-1.5), "-1.5");
  EXPECT_EQ(format_double(-0.0), "-0");
  EXPECT_EQ(format_double(std::numeric_limits<double>::infinity()), "inf");
}

TEST(Numbers, TruncatesLikeTheProcessor) {
  constexpr auto smallest = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(truncate(2.9), 2);
  EXPECT_EQ(truncate(-2.9), -2);
  EXPECT_EQ(truncate(9223372036854775808.0), smallest);
  EXPECT_EQ(truncate(std::nan("")), smallest);
}

TEST(Numbers, MatchesGlobs) {
  EXPECT_TRUE(matches_glob("*", ""));
  EXPECT_TRUE(matches_glob("a*c", "abbc"));
  EXPECT_FALSE(matches_glob("a*c", "abbd"));
  EXPECT_TRUE(matches_glob("h?llo", "hello"));
  EXPECT_TRUE(matches_glob("h[a-e]llo", "hello"));
  EXPECT_FALSE(matches_glob("h[^a-e]llo", "hello"));
  EXPECT_TRUE(matches_glob("\\*", "*"));
  EXPECT_FALSE(matches_glob("\\*", "x"));
  EXPECT_FALSE(matches_glob("ab", "a"));
}

TEST(SortedSet, OrdersByScoreThenByBytes) {
  sorted_set_value set;
  set.insert("b", 1);
  set.insert("\xff", 1);
  set.insert("a", 1);
  set.insert("z", -2);
  set.insert("ab", 1);

  std::string order;
  for (const auto& each : set.elements()) order += each.member + ' ';

  EXPECT_EQ(order, "z a ab b \xff ");
  EXPECT_EQ(set.rank_of("ab"), 2U);
  EXPECT_EQ(set.rank_of("nobody"), std::nullopt);
}

TEST(Hash, KeepsFieldsInOrder) {
  hash_value hash;

  EXPECT_TRUE(hash.set("b", "1"));
  EXPECT_TRUE(hash.set("a", "2"));
  EXPECT_FALSE(hash.set("b", "3"));

  ASSERT_EQ(hash.pairs().size(), 2U);
  EXPECT_EQ(hash.pairs()[0].field, "a");
  EXPECT_EQ(*hash.find("b"), "3");
  EXPECT_TRUE(hash.erase("a"));
  EXPECT_FALSE(hash.erase("a"));
}

}  // namespace
}  // namespace sallyport::sim::redis
