#include "backends/redis/slot_map.hpp"

#include <gtest/gtest.h>

namespace sallyport::backends::redis {
namespace {

reply number(std::int64_t value) {
  reply made;
  made.what = reply::kind::integer;
  made.integer = value;
  return made;
}

reply text(std::string value) {
  reply made;
  made.what = reply::kind::text;
  made.text = std::move(value);
  return made;
}

reply list(std::vector<reply> elements) {
  reply made;
  made.what = reply::kind::array;
  made.elements = std::move(elements);
  return made;
}

reply error(std::string words) {
  reply made;
  made.what = reply::kind::error;
  made.text = std::move(words);
  return made;
}

const net::endpoint asked{"seed", 7000, {}};

TEST(SlotMap, NamesTheMastersOfRanges) {
  const reply said = list({list({number(0), number(99), list({text("10.0.0.1"), number(7001)}),
                                 list({text("10.0.0.9"), number(7009)})}),
                           list({number(100), number(16383), list({text(""), number(7002)})})});

  const auto map = slots_in(said, asked);

  ASSERT_TRUE(map);
  EXPECT_EQ(*map, (std::vector<slot_range>{{0, 99, {"10.0.0.1", 7001, {}}},
                                           {100, 16383, {"seed", 7002, {}}}}));
}

TEST(SlotMap, RefusesWhatMakesNoSense) {
  EXPECT_FALSE(slots_in(error("ERR no"), asked));
  EXPECT_FALSE(slots_in(list({number(1)}), asked));
  EXPECT_FALSE(slots_in(list({list({number(5), number(4), list({text("h"), number(1)})})}), asked));
  EXPECT_FALSE(
      slots_in(list({list({number(0), number(16384), list({text("h"), number(1)})})}), asked));
  EXPECT_FALSE(slots_in(list({list({number(0), number(1), list({text("h"), number(0)})})}), asked));
}

TEST(SlotMap, UnderstandsRedirections) {
  EXPECT_EQ(target_of(error("MOVED 3999 127.0.0.1:6381"), asked),
            (net::endpoint{"127.0.0.1", 6381, {}}));
  EXPECT_EQ(target_of(error("ASK 3999 ::1:6381"), asked), (net::endpoint{"::1", 6381, {}}));
  EXPECT_EQ(target_of(error("MOVED 3999 :6381"), asked), (net::endpoint{"seed", 6381, {}}));
  EXPECT_EQ(target_of(error("MOVED 3999 ?:6381"), asked), (net::endpoint{"seed", 6381, {}}));
  EXPECT_FALSE(target_of(error("TRYAGAIN Multiple keys"), asked));
  EXPECT_FALSE(target_of(error("MOVED 3999 host"), asked));
  EXPECT_FALSE(target_of(error("MOVED"), asked));
}

}  // namespace
}  // namespace sallyport::backends::redis
