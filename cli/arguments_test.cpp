#include "cli/arguments.hpp"

#include "cli/message.hpp"
#include "cli/test_words.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace sallyport::cli {
namespace {

constexpr std::array<option_spec, 3> known{{
    {'n', "nonblock", ""},
    {'w', "wait", "SECONDS"},
    {0, "label", "TEXT"},
}};

/// What was read, in one line.
std::string told(const words& given) {
  argument_reader reader{given.span(), known};
  std::string text;
  while (const auto item = reader.next()) {
    text += item->option != nullptr ? std::string(item->option->long_name) + "=" : "word:";
    text += std::string(item->value) + " ";
  }
  if (reader.after_dashes()) text += "-- ";
  text += "rest:" + std::to_string(reader.rest().size());
  return text;
}

std::string refusal(const words& given) {
  try {
    return told(given);
  } catch (const usage_error& error) {
    EXPECT_EQ(error.code(), 64);
    return error.what();
  }
}

TEST(Arguments, AreReadInEverySpelling) {
  EXPECT_EQ(told({"--nonblock", "--wait", "5", "x"}), "nonblock= wait=5 word:x rest:0");
  EXPECT_EQ(told({"--wait=5", "--label=a=b", "--label="}), "wait=5 label=a=b label= rest:0");
  EXPECT_EQ(told({"-w5", "-w", "6", "-nw7", "-nn"}),
            "wait=5 wait=6 nonblock= wait=7 nonblock= nonblock= rest:0");
}

TEST(Arguments, EndAtTwoDashes) {
  EXPECT_EQ(told({"x", "--", "-n", "--bad"}), "word:x -- rest:2");
  EXPECT_EQ(told({"-"}), "word:- rest:0");
}

TEST(Arguments, NameTheNearestOptionWhenUnknown) {
  EXPECT_EQ(refusal({"--nonblok"}), "unknown option '--nonblok'; did you mean --nonblock?");
  EXPECT_EQ(refusal({"--xyzzy"}), "unknown option '--xyzzy'; --help lists the options");
  EXPECT_EQ(refusal({"-nq"}), "unknown option '-q'; --help lists the options");
  EXPECT_EQ(refusal({"-c"}),
            "unknown option '-c'; for a command line of the shell write: -- sh -c '...'");
}

TEST(Arguments, NeedTheirValues) {
  EXPECT_EQ(refusal({"--wait"}), "--wait needs a value");
  EXPECT_EQ(refusal({"-w"}), "-w needs a value");
  EXPECT_EQ(refusal({"-w", "--", "true"}), "-w needs a value, and '--' follows");
  EXPECT_EQ(refusal({"--nonblock=1"}), "--nonblock takes no value");
}

}  // namespace
}  // namespace sallyport::cli
