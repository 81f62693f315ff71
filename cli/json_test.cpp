#include "cli/json.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace sallyport::cli {
namespace {

TEST(JsonString, EscapesWhatMustBe) {
  EXPECT_EQ(json_string("plain"), R"("plain")");
  EXPECT_EQ(json_string("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(json_string("\n\t\x01\x7f"), R"("\u000a\u0009\u0001\u007f")");
  EXPECT_EQ(json_string(std::string_view("\0", 1)), R"("\u0000")");
}

TEST(JsonString, KeepsUtf8AndReplacesWhatIsNot) {
  EXPECT_EQ(json_string("größe €\xF0\x9F\x94\x92"), "\"größe €\xF0\x9F\x94\x92\"");
  EXPECT_EQ(json_string("\xFF"), R"("\ufffd")");
  EXPECT_EQ(json_string("a\xC3"), R"("a\ufffd")");
  EXPECT_EQ(json_string("\xC0\xAF"), R"("\ufffd\ufffd")");            // overlong
  EXPECT_EQ(json_string("\xED\xA0\x80"), R"("\ufffd\ufffd\ufffd")");  // a surrogate
  EXPECT_EQ(json_string("\xE2\x82"), R"("\ufffd\ufffd")");            // cut off
  EXPECT_EQ(json_string("\xF4\x90\x80\x80"), R"("\ufffd\ufffd\ufffd\ufffd")");
}

TEST(JsonWriter, PutsCommasWhereTheyBelong) {
  json_writer made;
  made.begin_object().key("a").value(std::int64_t{1}).key("b").begin_array();
  made.value("x").value(true).begin_object().end_object().begin_array().end_array();
  made.end_array().key("c").value("").end_object();

  EXPECT_EQ(made.text(), R"({"a":1,"b":["x",true,{},[]],"c":""})");
}

}  // namespace
}  // namespace sallyport::cli
