#include "backend_api/store_identity.hpp"

#include <sallyport/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::backend_api {
namespace {

TEST(StoreNames, AreWordsThatNeedNoQuotes) {
  for (const char* good : {"a", "shop", "shop-2.eu_west", "4F1c", "-"}) {
    EXPECT_TRUE(acceptable_store_name(good)) << good;
  }
  EXPECT_TRUE(acceptable_store_name(std::string(64, 'x')));
  for (const char* bad : {"", " ", "a b", "a|b", "a/b", "a:b", "a'b", "ä", "a\n"}) {
    EXPECT_FALSE(acceptable_store_name(bad)) << bad;
  }
  EXPECT_FALSE(acceptable_store_name(std::string(65, 'x')));
  EXPECT_FALSE(acceptable_store_name(std::string_view("a\0b", 3)));
}

TEST(StoreNames, ThatAreDrawnAreAcceptableAndDiffer) {
  std::set<std::string> drawn;

  for (int i = 0; i < 100; ++i) drawn.insert(fresh_store_name());

  EXPECT_EQ(drawn.size(), 100U);
  for (const std::string& each : drawn) EXPECT_TRUE(acceptable_store_name(each)) << each;
}

TEST(StoreIdentity, IsEmptyUntilTheStoreHasSaidIt) {
  store_identity identity{"redis"};
  EXPECT_FALSE(identity.known());
  EXPECT_EQ(identity.id(), "");

  EXPECT_TRUE(identity.learn("one"));

  EXPECT_EQ(identity.id(), "redis:one");
}

TEST(StoreIdentity, KeepsTheTextsOfEarlierOnes) {
  store_identity identity{"redis"};
  ASSERT_TRUE(identity.learn("one"));
  const std::string& first = identity.id();

  for (int i = 0; i < 100; ++i) ASSERT_TRUE(identity.learn("other" + std::to_string(i)));
  ASSERT_TRUE(identity.learn("one"));

  EXPECT_EQ(first, "redis:one");
  EXPECT_EQ(identity.id(), "redis:one");
}

TEST(StoreIdentity, MayChangeBetweenTheSameFewForEver) {
  store_identity identity{"redis"};
  ASSERT_TRUE(identity.learn("one"));
  const std::string& first = identity.id();

  for (std::size_t i = 0; i < store_identity::most_names; ++i) {
    ASSERT_TRUE(identity.learn("two")) << i;
    ASSERT_TRUE(identity.learn("one")) << i;
  }

  EXPECT_EQ(&identity.id(), &first);
}

TEST(StoreIdentity, ThatWasGivenByHandIsWhatItIsCalled) {
  store_identity identity{"redis", "mine"};

  EXPECT_TRUE(identity.learn("theirs"));

  EXPECT_TRUE(identity.named_by_hand());
  EXPECT_EQ(identity.id(), "redis:mine");
}

TEST(StoreIdentity, ThatWasGivenByHandTellsTheTokenSpacesOfOneServerApart) {
  const auto id = [](std::string_view place) {
    return store_identity{"redis", "mine", place}.id();
  };

  EXPECT_EQ(id("/0:"), "redis:mine/0:");
  EXPECT_EQ(id("/0:shop:"), "redis:mine/0:shop:");
  std::set<std::string> all;
  const std::vector<std::string> places{"/0:",      "/1:",    "/0:a",   "/0:a|b",
                                        "/0:a%7cb", "/0:a b", "/0:\xff"};
  for (const std::string& place : places) all.insert(id(place));
  EXPECT_EQ(all.size(), places.size());
  // Together with a lock's name it is one text, which has to say where the name begins.
  for (const std::string& each : all) EXPECT_EQ(each.find('|'), std::string::npos) << each;
}

TEST(StoreIdentity, RefusesWhatIsNoName) {
  store_identity identity{"redis"};

  const auto learnt = identity.learn("no name");

  ASSERT_FALSE(learnt);
  EXPECT_EQ(learnt.error().code, errc::store_refused);
  EXPECT_FALSE(identity.known());
}

TEST(StoreIdentity, RefusesAStoreThatHasANewNameAtEveryLook) {
  store_identity identity{"redis"};
  for (std::size_t i = 0; i < store_identity::most_names; ++i) {
    ASSERT_TRUE(identity.learn(std::to_string(i)));
  }

  EXPECT_FALSE(identity.learn("one more"));
  EXPECT_FALSE(identity.learn("one-more"));
}

}  // namespace
}  // namespace sallyport::backend_api
