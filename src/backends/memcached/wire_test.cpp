#include "backends/memcached/wire.hpp"

#include "backends/memcached/record.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

// Bytes of commands, answers, keys and items.
namespace sallyport::backends::memcached {
namespace {

std::vector<answer_line> lines_of(std::string_view bytes, std::size_t at_a_time) {
  line_reader reader;
  std::vector<answer_line> all;
  for (std::size_t i = 0; i < bytes.size(); i += at_a_time) {
    reader.feed(bytes.substr(i, at_a_time));
    for (;;) {
      auto next = reader.next();
      if (!next || !*next) break;
      all.push_back(std::move(**next));
    }
  }
  return all;
}

TEST(Commands, AskForTheMarkStoreAndEndWithALineThatIsTagged) {
  std::string bytes;
  append_command(bytes, add_item("door", "a value", 32), 5);
  EXPECT_EQ(bytes, "add door 0 32 7\r\na value\r\nmg door c t v u O5\r\n");
  bytes.clear();
  append_command(bytes, replace_item("door", "x", 3, 18446744073709551615U), 6);
  EXPECT_EQ(bytes,
            "mg door h u\r\ncas door 0 3 1 18446744073709551615\r\nx\r\nmg door c t v u O6\r\n");
  bytes.clear();
  append_command(bytes, delete_item("door", 9), 7);
  EXPECT_EQ(bytes, "mg door h u\r\nmd door C9 O7\r\n");
}

TEST(Lines, AreCutWhereverTheBytesAreCut) {
  constexpr std::string_view bytes = "STORED\r\nVA 4 c7 t30 O1\r\n\r\nab\r\nEN O2\r\n";
  for (std::size_t step = 1; step <= bytes.size(); ++step) {
    const auto all = lines_of(bytes, step);
    ASSERT_EQ(all.size(), 3U) << step;
    EXPECT_EQ(all[0].text, "STORED");
    EXPECT_EQ(all[1].value, "\r\nab");
    EXPECT_EQ(all[2].text, "EN O2");
  }
}

TEST(Lines, ThatNoServerSendsAreMalformed) {
  for (const std::string& bad :
       {std::string(5000, 'x'), std::string("VA x c1\r\n"), std::string("VA 99999999999 c1\r\n"),
        std::string("VA 2 c1\r\nabcd\r\n"), std::string("VA -1\r\n")}) {
    line_reader reader;
    reader.feed(bad);
    EXPECT_FALSE(reader.next()) << bad.substr(0, 20);
  }
}

TEST(Replies, ArePutTogetherFromTheirLines) {
  reply_builder builder(4, 1);
  EXPECT_FALSE(builder.take({.text = "NOT_STORED", .value = {}}).value());
  EXPECT_TRUE(builder.take({.text = "VA 1 c9 t-1 O4", .value = "x"}).value());
  const reply said = builder.finished();
  EXPECT_EQ(said.stored, store_outcome::not_stored);
  EXPECT_EQ(said.found, meta_outcome::item);
  EXPECT_EQ(said.cas, 9U);
  EXPECT_EQ(said.seconds, -1);
  EXPECT_EQ(said.value, "x");
}

TEST(Replies, ToAReplacementTellTheMarkAsItWasBefore) {
  const wire_command what = replace_item("door", "x", 3, 8);
  reply_builder builder(4, what.lines);
  EXPECT_FALSE(builder.take({.text = "HD h1", .value = {}}).value());
  EXPECT_FALSE(builder.take({.text = "STORED", .value = {}}).value());
  EXPECT_TRUE(builder.take({.text = "VA 1 c9 t3 O4", .value = "x"}).value());
  const reply said = builder.finished();
  EXPECT_TRUE(said.fetched);
  EXPECT_EQ(said.stored, store_outcome::stored);
  EXPECT_EQ(said.cas, 9U);
}

TEST(Replies, ToADeletionTellWhetherTheItemWasFetched) {
  for (const char* const mark : {"HD h0", "HD h1", "EN"}) {
    reply_builder builder(4, 1);
    EXPECT_FALSE(builder.take({.text = mark, .value = {}}).value());
    EXPECT_TRUE(builder.take({.text = "HD O4", .value = {}}).value());
    EXPECT_EQ(builder.finished().fetched, std::string_view(mark) == "HD h1");
  }
}

TEST(Replies, OfOthersAreNotTaken) {
  // The answer before, once more; one that is late; one that nobody asked for; an old word.
  for (const char* const line : {"HD O3", "EX O5", "HD", "VA 0 c1 t1", "STORED", "MN", "", "HD Ox",
                                 "ERROR", "CLIENT_ERROR bad data chunk", "EN O3"}) {
    reply_builder builder(4, 0);
    EXPECT_FALSE(builder.take({.text = line, .value = {}})) << line;
  }
  reply_builder storing(4, 1);
  EXPECT_FALSE(storing.take({.text = "HD O4", .value = {}}));
  reply_builder old_server(4, 0);
  EXPECT_TRUE(old_server.take({.text = "EN", .value = {}}).value());
}

TEST(Keys, AreTheNameWhereItFits) {
  EXPECT_EQ(key_of("", "orders/42"), "orders/42");
  EXPECT_EQ(key_of("app:", "\xc3\xa9"), "app:\xc3\xa9");
  EXPECT_EQ(key_of("", std::string(250, 'x')), std::string(250, 'x'));
}

TEST(Keys, NeverHoldWhatWouldEndThem) {
  const std::string long_prefix(longest_prefix, 'p');
  for (const std::string& name : {std::string("two words"), std::string("quote'\""),
                                  std::string(255, 'x'), std::string(251, 'y'),
                                  std::string("no\xc2\xa0"
                                              "break"),
                                  std::string(" "), std::string("set x 0 0 1")}) {
    for (const std::string& prefix : {std::string(), std::string("app:"), long_prefix}) {
      const std::string key = key_of(prefix, name);
      EXPECT_LE(key.size(), longest_key);
      EXPECT_TRUE(key.starts_with(prefix));
      for (const char each : key) {
        EXPECT_GT(static_cast<unsigned char>(each), 0x20) << name;
        EXPECT_NE(each, '\x7f');
      }
    }
  }
}

TEST(Keys, OfTwoNamesNeverMeet) {
  std::set<std::string> keys;
  std::size_t names = 0;
  const std::vector<std::string> pieces{"a", " ", "\xc3\xbf", std::string(120, 'z'), "/", "%20"};
  for (const std::string& one : pieces) {
    for (const std::string& two : pieces) {
      for (const std::string& three : pieces) {
        const std::string name = one + two + three;
        if (!lock_name::acceptable(name)) continue;
        ++names;
        keys.insert(key_of("", name));
      }
    }
  }
  EXPECT_EQ(keys.size(), names);
  // What a digest looks like is no name at all.
  EXPECT_FALSE(lock_name::acceptable(key_of("", "two words")));
}

TEST(Prefixes, ThatDoNotFitAreRefused) {
  EXPECT_TRUE(acceptable_prefix(""));
  EXPECT_TRUE(acceptable_prefix("app:"));
  EXPECT_FALSE(acceptable_prefix("two words"));
  EXPECT_FALSE(acceptable_prefix("line\r\nflush_all"));
  EXPECT_FALSE(acceptable_prefix("\xff"));
  EXPECT_FALSE(acceptable_prefix(std::string(129, 'p')));
}

TEST(Records, ComeBackAsTheyWere) {
  for (const std::string& text :
       {std::string(), std::string("-"), std::string("plain"), std::string("two words"),
        std::string("100%"), std::string("\r\nflush_all\r\n"), std::string(1, '\0'),
        std::string("\xff\xfe")}) {
    const record given{.kind = lock_kind::election,
                       .closed = false,
                       .holder = {.high = 0xfedcba9876543210, .low = 1},
                       .token = 77,
                       .local_waiters = 3,
                       .since_ms = 1'700'000'000'000,
                       .pid = 4711,
                       .host = text,
                       .label = text,
                       .value = text};
    const std::string value = to_value(given);
    EXPECT_EQ(value.find('\r'), std::string::npos);
    EXPECT_EQ(from_value(value), given) << value;
  }
}

TEST(Records, OfOthersAreNotOurs) {
  const std::string good = to_value({.holder = {.high = 1, .low = 2}});
  ASSERT_TRUE(from_value(good));
  for (const std::string& bad :
       {std::string(), std::string("sp1"), good + " more", good.substr(0, good.size() - 2),
        "sp2" + good.substr(3), std::string("sp1 h x ") + good.substr(8),
        std::string("sp1 h m zz") + good.substr(10)}) {
    EXPECT_FALSE(from_value(bad)) << bad;
  }
}

}  // namespace
}  // namespace sallyport::backends::memcached
