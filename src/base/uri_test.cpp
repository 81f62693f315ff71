#include "base/uri.hpp"

#include <gtest/gtest.h>

namespace sallyport::base {
namespace {

TEST(Uri, IsTakenApart) {
  std::string why;
  const auto found = parse_uri("rediss://ann:se%40cret@one:1,[::1]:2,three/5?a=b%26c&d=", why);

  ASSERT_TRUE(found) << why;
  EXPECT_EQ(found->scheme, "rediss");
  EXPECT_EQ(found->user, "ann");
  EXPECT_EQ(found->password, "se@cret");
  const std::vector<uri_host> hosts{{"one", "1"}, {"::1", "2"}, {"three", ""}};
  EXPECT_EQ(found->hosts, hosts);
  EXPECT_EQ(found->path, "/5");
  ASSERT_EQ(found->options.size(), 2U);
  EXPECT_EQ(found->options[0].second, "b&c");
  EXPECT_EQ(found->options[1].first, "d");
}

TEST(Uri, MayBeAPathAlone) {
  std::string why;
  const auto found = parse_uri("redis+unix:///run/my%20redis.sock?db=1", why);

  ASSERT_TRUE(found) << why;
  EXPECT_TRUE(found->hosts.empty());
  EXPECT_EQ(found->path, "/run/my redis.sock");
}

TEST(Uri, AnAtSignInThePasswordEndsNothing) {
  std::string why;
  const auto found = parse_uri("redis://:p@ss@host", why);

  ASSERT_TRUE(found) << why;
  EXPECT_EQ(found->user, "");
  EXPECT_EQ(found->password, "p@ss");
  EXPECT_EQ(found->hosts.front().name, "host");
}

TEST(Uri, WhatIsWrongIsSaidWithoutSecrets) {
  for (const char* const wrong :
       {"redis:secret", "redis://u:secret%2@h", "redis://u:secret@[::1", "redis://u:secret@::1:5",
        "redis://u:secret@[::1]x", "redis://u:secret%00@h"}) {
    std::string why;
    EXPECT_FALSE(parse_uri(wrong, why)) << wrong;
    EXPECT_FALSE(why.empty()) << wrong;
    EXPECT_EQ(why.find("secret"), std::string::npos) << wrong;
  }
}

TEST(Uri, NumbersAreWholeAndInTheirBounds) {
  EXPECT_EQ(parse_number("15", 0, 15), 15U);
  EXPECT_FALSE(parse_number("16", 0, 15));
  EXPECT_FALSE(parse_number("", 0, 15));
  EXPECT_FALSE(parse_number("1x", 0, 15));
  EXPECT_FALSE(parse_number("-1", 0, 15));
}

}  // namespace
}  // namespace sallyport::base
