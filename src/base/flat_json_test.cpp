#include "base/flat_json.hpp"

#include <gtest/gtest.h>

#include <map>

namespace sallyport::base {
namespace {

using fields = std::map<std::string, flat_json_value, std::less<>>;

bool read(std::string_view text, fields& into) {
  return read_flat_json(text, [&](std::string_view name, flat_json_value value) {
    into.insert_or_assign(std::string(name), std::move(value));
  });
}

TEST(FlatJson, ComesBackAsItWas) {
  flat_json_writer made;
  made.text("te\"xt", std::string("a\"b\\c\n\t\x01/ü\0z", 13));
  made.number("number", -(std::int64_t{1} << 60U));
  made.truth("yes", true);
  made.truth("no", false);
  fields found;

  ASSERT_TRUE(read(made.finished(), found));

  EXPECT_EQ(found, (fields{{"te\"xt", std::string("a\"b\\c\n\t\x01/ü\0z", 13)},
                           {"number", -(std::int64_t{1} << 60U)},
                           {"yes", true},
                           {"no", false}}));
}

TEST(FlatJson, IsWrittenInOneWay) {
  flat_json_writer made;
  made.text("by", "me");
  made.number("n", 7);
  made.truth("t", true);
  EXPECT_EQ(made.finished(), R"({"by":"me","n":7,"t":true})");
  EXPECT_EQ(flat_json_writer{}.finished(), "{}");
}

TEST(FlatJson, ReadsWhatOthersWrite) {
  fields found;
  EXPECT_TRUE(read(" { \"a\" : \"\\/\\u0041\\u20ac\" ,\n\"b\":\ttrue } ", found));
  EXPECT_EQ(found, (fields{{"a", std::string("/A?")}, {"b", true}}));
  EXPECT_TRUE(read("{}", found));
}

TEST(FlatJson, RefusesEverythingElse) {
  for (const char* const text :
       {"", "{", "}", "[]", "text", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{\"a\":1", "{\"a\":1}x",
        "{\"a\":{}}", "{\"a\":null}", "{\"a\":1.5}", "{\"a\":\"\\x\"}", "{\"a\":\"\\u12\"}",
        "{\"a\":99999999999999999999}", "{a:1}"}) {
    fields found;
    EXPECT_FALSE(read(text, found)) << text;
  }
}

}  // namespace
}  // namespace sallyport::base
