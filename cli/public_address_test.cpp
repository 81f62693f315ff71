#include "cli/public_address.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace sallyport::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(PublicAddress, IsTheAddressWhereNothingIsSecret) {
  for (const std::string_view each :
       {"local:",
        "local:/srv/locks",
        "local:/home/a@b:c/x?size=256M&map=no",
        "memory:",
        "memory:a",
        "redis://db",
        "redis://app@db:6379/0?prefix=app:",
        "redis://app:@db",
        "redis://db?prefix=a:b@c",
        "redis+unix:///run/a:b@c/redis.sock?db=3",
        "rediss://db?ca_file=/a&password_file=/run/secret",
        "redis+sentinel://s1,s2:26380/main/2?user=app&sentinel_password_file=/x",
        "redlock://r1,r2:7000,r3?prefix=x",
        "etcd://[::1]:2379,h2?prefix=app/",
        "etcds://h?key_file=/k",
        "postgres://app@db/shop?schema=locks&application_name=a%40b",
        "postgres:///?service=locks",
        "postgres://db/shop?sslkey=/k&passfile=/p",
        "mariadb://app@db/shop?defaults_file=/f",
        "zookeeper://z1,z2/locks?tick=500&dialect=kazoo",
        "memcached://h?prefix=a",
        "redis://a:b",
        "no address at all"}) {
    const auto shown = public_address_of(each);
    EXPECT_EQ(shown.text, each);
    EXPECT_FALSE(shown.incomplete) << each;
    EXPECT_THAT(shown.variables, IsEmpty()) << each;
  }
  EXPECT_EQ(public_address_of("").text, "local:");
}

TEST(PublicAddress, LeavesSecretsOut) {
  const std::array<std::pair<std::string_view, std::string_view>, 19> all{{
      {"redis://:s3cret@db/0", "redis://db/0"},
      {"redis://app:s3cret@db:6379/0?prefix=x", "redis://app@db:6379/0?prefix=x"},
      {"redis://app:a@s3cret@db", "redis://app@db"},
      {"redis://app:s3cret@db?prefix=a@b", "redis://app@db?prefix=a@b"},
      {"redis+sentinel://:s3cret@s1,s2/main", "redis+sentinel://s1,s2/main"},
      {"redlock://app:s3cret@r1,r2,r3?prefix=x", "redlock://app@r1,r2,r3?prefix=x"},
      {"redlock://a:s3cret@r1,a:s3cret@r2,a:s3cret@r3", "redlock://a@r3"},
      {"etcds://root:s3cret@[::1]:2379,h2?prefix=app/", "etcds://root@[::1]:2379,h2?prefix=app/"},
      {"postgres://app:s3cret@db:5432/shop?schema=x", "postgres://app@db:5432/shop?schema=x"},
      {"postgres://db/shop?user=app&password=s3cret&schema=x",
       "postgres://db/shop?user=app&schema=x"},
      {"postgres://db/shop?password=s3cret", "postgres://db/shop"},
      {"postgres://db/shop?pass%77ord=s3cret", "postgres://db/shop"},
      {"postgres://db/shop?sslpassword=s3cret&sslkey=/k", "postgres://db/shop?sslkey=/k"},
      {"postgres://app:a?s3cret@db/shop?schema=x", "postgres://app@db/shop?schema=x"},
      {"postgres://app:a?s3cret@db", "postgres://app@db"},
      {"postgresql://app:s3cret@/shop?host=/run/pg", "postgresql://app@/shop?host=/run/pg"},
      {"mariadb://app:s3cret@db:3306/shop?prefix=l_", "mariadb://app@db:3306/shop?prefix=l_"},
      {"zookeeper://app:s3cret@z1,z2/locks", "zookeeper://app@z1,z2/locks"},
      {"memcached://app:s3cret@h", "memcached://app@h"},
  }};
  for (const auto& [address, expected] : all) {
    const auto shown = public_address_of(address);
    EXPECT_EQ(shown.text, expected);
    EXPECT_TRUE(shown.incomplete) << address;
  }
}

TEST(PublicAddress, NamesTheVariablesThatHoldSecrets) {
  const auto one = public_address_of("etcd://root@h?password_env=PW&prefix=a");
  EXPECT_EQ(one.text, "etcd://root@h?password_env=PW&prefix=a");
  EXPECT_TRUE(one.incomplete);
  EXPECT_THAT(one.variables, ElementsAre("PW"));

  const auto two = public_address_of(
      "redis+sentinel://s1/m?password_env=A%5FB&sentinel_password_env=C&password_env=");
  EXPECT_TRUE(two.incomplete);
  EXPECT_THAT(two.variables, ElementsAre("A_B", "C", ""));
}

TEST(PublicAddress, SaysWhoseTheStoreIs) {
  EXPECT_EQ(store_text(""), "local: (this user's)");
  EXPECT_EQ(store_text("local:?size=2M"), "local:?size=2M (this user's)");
  EXPECT_EQ(store_text("local:machine"), "local:machine (this machine's)");
  EXPECT_EQ(store_text("local:/srv/locks"), "local:/srv/locks");
  EXPECT_EQ(store_text("redis://app:s3cret@db"), "redis://app@db");
}

TEST(PublicAddress, SurvivesWhatIsNoAddress) {
  for (const std::string_view each :
       {"?", "://", "://@", "://:@", "a://?", "a://@?", "a://:p@", "%", "x?%",
        "x?=&&=", "a://b:s3cret@c@d/?e", "postgres://?@", "postgres://:s3cret@?"}) {
    EXPECT_THAT(public_address_of(each).text, Not(HasSubstr("s3cret"))) << each;
  }
}

}  // namespace
}  // namespace sallyport::cli
