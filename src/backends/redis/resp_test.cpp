#include "backends/redis/resp.hpp"

#include "backends/redis/reply_functions.hpp"
#include "base/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sallyport::backends::redis {
namespace {

reply made(reply::kind what, std::string text) {
  reply one;
  one.what = what;
  one.text = std::move(text);
  return one;
}
reply text(std::string value) { return made(reply::kind::text, std::move(value)); }
reply status(std::string value) { return made(reply::kind::status, std::move(value)); }
reply error(std::string value) { return made(reply::kind::error, std::move(value)); }
reply number(std::int64_t value) {
  reply one = made(reply::kind::integer, "");
  one.integer = value;
  return one;
}
reply array(std::vector<reply> elements) {
  reply one = made(reply::kind::array, "");
  one.elements = std::move(elements);
  return one;
}

/// All replies in these bytes, fed in pieces of `size`.
std::vector<reply> read_in_pieces(std::string_view bytes, std::size_t size) {
  reply_reader reader;
  std::vector<reply> all;
  while (!bytes.empty()) {
    reader.feed(bytes.substr(0, size));
    bytes.remove_prefix(std::min(size, bytes.size()));
    for (;;) {
      auto next = reader.next();
      EXPECT_TRUE(next.has_value());
      if (!next || !*next) break;
      all.push_back(std::move(**next));
    }
  }
  return all;
}

/// The failure that these bytes lead to; empty: they are fine so far.
std::string why_malformed(std::string_view bytes) {
  reply_reader reader;
  reader.feed(bytes);
  for (;;) {
    auto next = reader.next();
    if (!next) return next.error().detail;
    if (!*next) return "";
  }
}

std::string encoded(const reply& what) {
  switch (what.what) {
    case reply::kind::nil:
      return "$-1\r\n";
    case reply::kind::integer:
      return ":" + std::to_string(what.integer) + "\r\n";
    case reply::kind::text:
      return "$" + std::to_string(what.text.size()) + "\r\n" + what.text + "\r\n";
    case reply::kind::status:
      return "+" + what.text + "\r\n";
    case reply::kind::error:
      return "-" + what.text + "\r\n";
    case reply::kind::array:
      break;
  }
  std::string all = "*" + std::to_string(what.elements.size()) + "\r\n";
  for (const reply& each : what.elements) all += encoded(each);
  return all;
}

reply random_reply(base::random& random, int depth) {
  switch (random.below(depth > 0 ? 6 : 5)) {
    case 0:
      return {};
    case 1:
      return number(static_cast<std::int64_t>(random()));
    case 2: {
      std::string bytes(random.below(200), 'x');
      for (char& each : bytes) each = static_cast<char>(random.below(256));
      return text(std::move(bytes));
    }
    case 3:
      return status("OK");
    case 4:
      return error("ERR number " + std::to_string(random.below(100)));
    default:
      break;
  }
  std::vector<reply> elements(random.below(5));
  for (reply& each : elements) each = random_reply(random, depth - 1);
  return array(std::move(elements));
}

TEST(Resp, ReadsEveryKindOfReply) {
  const std::string bytes =
      "+OK\r\n-WRONGTYPE of "
      "key\r\n:-7\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n*0\r\n*2\r\n:1\r\n*1\r\n$0\r\n\r\n";

  const std::vector<reply> all = read_in_pieces(bytes, bytes.size());

  EXPECT_EQ(all, (std::vector<reply>{status("OK"), error("WRONGTYPE of key"), number(-7),
                                     text("a\r\n"), reply{}, reply{}, array({}),
                                     array({number(1), array({text("")})})}));
  EXPECT_EQ(all[1].error_word(), "WRONGTYPE");
}

TEST(Resp, ReadsRepliesThatComeInPieces) {
  base::random random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<reply> said(1 + random.below(6));
    std::string bytes;
    for (reply& each : said) bytes += encoded(each = random_reply(random, 5));

    // At every byte, and in pieces of all small sizes.
    for (std::size_t size = 1; size <= 17; ++size) {
      ASSERT_EQ(read_in_pieces(bytes, size), said) << round;
    }
    for (std::size_t cut = 1; cut < bytes.size(); cut += 1 + bytes.size() / 200) {
      reply_reader reader;
      reader.feed(std::string_view(bytes).substr(0, cut));
      std::vector<reply> all;
      while (auto next = reader.next().value()) all.push_back(std::move(*next));
      reader.feed(std::string_view(bytes).substr(cut));
      while (auto next = reader.next().value()) all.push_back(std::move(*next));
      ASSERT_EQ(all, said) << round;
    }
  }
}

TEST(Resp, SurvivesAnyBytes) {
  base::random random(11);
  constexpr std::string_view alphabet = "+-:$*0123456789\r\nab\0";
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random.below(40), 'x');
    for (char& each : bytes) each = alphabet[random.below(alphabet.size())];
    static_cast<void>(why_malformed(bytes));
  }
}

TEST(Resp, RefusesWhatIsNoReply) {
  EXPECT_NE(why_malformed("HTTP/1.1 400 Bad Request\r\n"), "");
  EXPECT_NE(why_malformed("*2\r\n:1\r\n?\r\n"), "");
  EXPECT_EQ(why_malformed("*2\r\n:1\r\n"), "");
}

TEST(Resp, RefusesWhatIsTooLarge) {
  EXPECT_NE(why_malformed("*1000001\r\n"), "");
  EXPECT_EQ(why_malformed("*1000000\r\n"), "");
}

TEST(Resp, RefusesTooManyElementsInAll) {
  std::string bytes = "*3\r\n";
  for (int i = 0; i < 2; ++i) {
    bytes += "*400000\r\n";
    for (int j = 0; j < 400'000; ++j) bytes += ":1\r\n";
  }

  EXPECT_EQ(why_malformed(bytes), "");
  EXPECT_NE(why_malformed(bytes + "*400000\r\n"), "");
}

TEST(Resp, RefusesATextThatIsTooLong) {
  reply_reader reader;
  reader.feed("$600000000\r\n");
  const std::string piece(1024UL * 1024, 'x');
  std::size_t fed = 0;
  while (reader.next().has_value()) {
    reader.feed(piece);
    fed += piece.size();
    ASSERT_LE(fed, reply_reader::max_reply_bytes + 2 * piece.size());
  }
}

TEST(Resp, RefusesWhatIsNestedTooDeep) {
  std::string deep;
  for (int i = 0; i < 12; ++i) deep += "*1\r\n";

  EXPECT_NE(why_malformed(deep + ":1\r\n"), "");
}

/// The table of hiredis 1.x.
struct newer_functions {
  void* (*createString)(const int*, char*, std::size_t);
  void* (*createArray)(const int*, std::size_t);
  void* (*createInteger)(const int*, long long);
  void* (*createDouble)(const int*, double, char*, std::size_t);
  void* (*createNil)(const int*);
  void* (*createBool)(const int*, int);
  void (*freeObject)(void*);
};

struct newer_builder {
  static void* make_string(const int*, char* bytes, std::size_t) { return bytes; }
  template <class Count>
  static void* make_array(const int*, Count count) {
    return reinterpret_cast<void*>(static_cast<std::size_t>(count));
  }
  static void* make_integer(const int*, long long) { return nullptr; }
  static void* make_nil(const int*) { return nullptr; }
  static void free_object(void*) {}
};

TEST(ReplyReader, BuildsTheTableOfANewerHiredis) {
  const auto table = reply_functions<newer_functions, newer_builder>();

  EXPECT_EQ(table.createArray(nullptr, 5'000'000'000), reinterpret_cast<void*>(5'000'000'000));
  EXPECT_NE(table.createNil, nullptr);
  EXPECT_EQ(table.createDouble, nullptr);
  EXPECT_NE(table.freeObject, nullptr);
}

}  // namespace
}  // namespace sallyport::backends::redis
