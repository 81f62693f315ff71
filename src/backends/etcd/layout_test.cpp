#include "backends/etcd/layout.hpp"

#include "backends/etcd/description.hpp"
#include "backends/etcd/standing.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sallyport::backends::etcd {
namespace {

constexpr lease_id some_lease = 0x4123456789abcdef;

TEST(EtcdLayout, AContenderIsOneSegmentBelowTheName) {
  const layout keys("app/");

  EXPECT_EQ(keys.key("orders/42", form::mutex, some_lease, 7), "app/orders/42/4123456789abcdef#m7");
  EXPECT_EQ(segment_in(keys.folder("orders"), "app/orders/4123#m7"), "4123#m7");
  EXPECT_FALSE(segment_in(keys.folder("orders"), "app/orders/42/4123#m7"));
  EXPECT_FALSE(segment_in(keys.folder("orders"), "app/ordersx/4123#m7"));
}

TEST(EtcdLayout, NoNamesRangeHoldsAnothersCards) {
  const layout keys("");
  const std::string card = keys.card(keys.key("a", form::election, some_lease, 1));

  EXPECT_EQ(card.front(), '\x01');
  for (const std::string name : {"a", "a/b", "!", "~"}) {
    EXPECT_FALSE(card >= keys.folder(name) && card < keys.folder_end(name)) << name;
  }
}

TEST(EtcdLayout, FormsAreToldByTheirLetters) {
  const layout keys("");
  for (const form each : {form::mutex, form::election, form::writer, form::reader, form::permit}) {
    const std::string key = keys.key("x", each, some_lease, 12);
    EXPECT_EQ(form_of(*segment_in("x/", key)), each);
  }
  for (const std::string other : {"694d7c6d1a5e8a01", "", "#m1", "12#", "12#m", "12#x1", "zz#m1"}) {
    EXPECT_EQ(form_of(other), form::foreign) << other;
  }
}

TEST(EtcdLayout, AListedNameHasAContenderOfKnownForm) {
  const layout keys("p:");
  const auto name = [&](const std::string& key, lease_id lease) {
    const key_value found{.key = key, .lease = lease};
    const auto of = keys.name_of(found);
    return of ? std::string(*of) : std::string("-");
  };

  EXPECT_EQ(name("p:a/b/12#m1", 5), "a/b");
  EXPECT_EQ(name("p:a/b/5", 5), "a/b") << "Go's key is its lease";
  EXPECT_EQ(name("p:a/b/6", 5), "-");
  EXPECT_EQ(name("p:a/12#m1", 0), "-") << "data without a lease is no contender";
  EXPECT_EQ(name("p:\x01"
                 "a/12#e1",
                 5),
            "-")
      << "a card";
  EXPECT_EQ(name("q:a/12#m1", 5), "-");
}

TEST(EtcdLayout, TheRangeOfAPrefixEndsBehindIt) {
  EXPECT_EQ(behind("ab"), "ac");
  EXPECT_EQ(behind("a\xff"), "b");
  EXPECT_EQ(behind("\xff"), "");
  EXPECT_EQ(behind(""), "");
}

TEST(EtcdDescription, ComesBackAsItWasWritten) {
  const description said{.host = "ho\"st\\",
                         .label = "line\nand \x01 byte",
                         .pid = 42,
                         .since_ms = 1'700'000'000'000,
                         .waiters = 3,
                         .permits = 5,
                         .token = (std::uint64_t{1} << 53U) - 1,
                         .shared = true,
                         .closed = true};

  EXPECT_EQ(from_json(to_json(said)), said);
  EXPECT_EQ(from_json(to_json({})), description{});
}

TEST(EtcdDescription, WhatOthersWroteIsNothing) {
  for (const std::string text :
       {"", "{}", "hello", "{\"host\":\"x\"}", "{\"by\":\"sallyport\"", "{\"by\":\"sallyport\",}",
        "{\"by\":\"sallyport\"} x", "{\"by\":\"sallyport\",\"pid\":[1]}"}) {
    EXPECT_FALSE(from_json(text)) << text;
  }
  EXPECT_TRUE(from_json("{\"by\":\"sallyport\",\"of tomorrow\":\"yes\",\"pid\":7}"));
}

// ---- standing ------------------------------------------------------------------------------------

entry at(form what, revision created, std::uint32_t permits = 0) {
  return {.key = std::to_string(created),
          .what = what,
          .shared = what == form::reader,
          .permits = permits,
          .created = created};
}

using word = standing::word;

TEST(EtcdStanding, WhoIsFirstIsIn) {
  for (const form each : {form::mutex, form::election, form::writer, form::reader, form::permit}) {
    EXPECT_EQ(stand(each, 1, {}, true).is, word::admitted);
    EXPECT_EQ(stand(each, 1, {}, false).is, word::unclear) << "somebody may be on the next page";
  }
}

TEST(EtcdStanding, TheExclusiveWaitForTheOneRightBeforeThem) {
  const std::vector<entry> before{at(form::mutex, 9), at(form::mutex, 5)};

  const standing where = stand(form::mutex, 1, before, false);

  EXPECT_EQ(where.is, word::blocked);
  EXPECT_EQ(where.behind, "9");
  EXPECT_FALSE(where.by_change);
}

TEST(EtcdStanding, AContenderOfAnotherLibraryIsRespectedByAllKinds) {
  const std::vector<entry> before{at(form::foreign, 9)};
  for (const form each : {form::mutex, form::election, form::writer, form::reader, form::permit}) {
    EXPECT_EQ(stand(each, 5, before, true).is, word::blocked);
    EXPECT_EQ(stand(each, 5, before, true).behind, "9");
  }
}

TEST(EtcdStanding, AReaderWaitsForTheNearestWriter) {
  const std::vector<entry> before{at(form::reader, 9), at(form::writer, 7), at(form::writer, 5)};

  const standing where = stand(form::reader, 1, before, true);

  EXPECT_EQ(where.is, word::blocked);
  EXPECT_EQ(where.behind, "7");
  EXPECT_TRUE(where.by_change) << "it may be downgraded";
}

TEST(EtcdStanding, AReaderPassesReadersAndADowngradedWriter) {
  std::vector<entry> before{at(form::reader, 9), at(form::writer, 7)};
  before[1].shared = true;

  EXPECT_EQ(stand(form::reader, 1, before, true).is, word::admitted);
  EXPECT_EQ(stand(form::writer, 1, before, true).behind, "9");
}

TEST(EtcdStanding, AsManyAsPermitsAreIn) {
  const std::vector<entry> before{at(form::permit, 9, 2), at(form::permit, 7, 2),
                                  at(form::permit, 5, 2)};
  const std::span<const entry> all(before);

  EXPECT_EQ(stand(form::permit, 2, all.subspan(2), true).is, word::admitted);
  const standing next = stand(form::permit, 2, all.subspan(1), true);
  EXPECT_EQ(next.is, word::blocked);
  EXPECT_EQ(next.behind, "") << "anybody who leaves lets it in";
  const standing later = stand(form::permit, 2, all, true);
  EXPECT_EQ(later.is, word::blocked);
  EXPECT_EQ(later.behind, "9");
  EXPECT_TRUE(later.by_change) << "its change tells that it is in";
}

TEST(EtcdStanding, TheOldestOnesNumberOfPermitsCounts) {
  const std::vector<entry> before{at(form::permit, 9, 5), at(form::permit, 7, 2)};

  const standing where = stand(form::permit, 5, before, true);

  EXPECT_EQ(where.permits, 2U);
  EXPECT_EQ(where.is, word::blocked);
}

TEST(EtcdStanding, AnotherKindIsRefusedUnlessItsOwnIsThereToo) {
  const std::vector<entry> semaphore{at(form::permit, 5, 2)};
  EXPECT_EQ(stand(form::mutex, 1, semaphore, true).is, word::wrong_kind);

  // A mutex came by mistake and is about to go; the semaphore's own go on.
  const std::vector<entry> both{at(form::mutex, 9), at(form::permit, 5, 2)};
  const standing where = stand(form::permit, 2, both, true);
  EXPECT_EQ(where.is, word::blocked);
  EXPECT_EQ(where.behind, "9");
}

TEST(EtcdStanding, KeysWithoutALeaseOrDeeperOnesAreNoContenders) {
  EXPECT_FALSE(entry_of("a/", {.key = "a/data", .lease = 0}));
  EXPECT_FALSE(entry_of("a/", {.key = "a/b/12#m1", .lease = 4}));
  const auto found = entry_of("a/", {.key = "a/12#m1", .created = 3, .lease = 4});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->what, form::mutex);
  EXPECT_EQ(found->created, 3);
}

}  // namespace
}  // namespace sallyport::backends::etcd
