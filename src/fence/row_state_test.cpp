#include "fence/row_state.hpp"

#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

namespace sallyport::optimistic {
namespace {

constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

std::string id(char of) { return std::string(table::writer_bytes, of); }

/// The writers whose letters these are, the newest first.
std::string writers(const std::string& letters) {
  std::string out;
  for (const char each : letters) out += id(each);
  return out;
}

TEST(FateOfAWrite, IsReadFromTheRow) {
  struct line {
    const char* why;
    std::int64_t version;
    std::string writers;
    fate expected;
  };
  const std::int64_t sent_at = 40;
  const std::vector<line> lines{
      {"nothing happened yet", 40, writers(""), fate::open},
      {"nothing happened yet, and others wrote before", 40, writers("xyz"), fate::open},
      {"it was written", 41, writers("m"), fate::written},
      {"others came after it", 44, writers("abcm"), fate::written},
      {"it is the oldest that is known", 48, writers("abcdefgm"), fate::written},
      {"others were faster", 41, writers("a"), fate::dead},
      {"all eight since then are known", 48, writers("abcdefgh"), fate::dead},
      {"the ninth is not", 49, writers("abcdefgh"), fate::unknown},
      {"nobody remembers", 41, "", fate::unknown},
      {"a column too narrow for two", 42, writers("a") + "bbbb", fate::unknown},
      {"others who leave no id came after it", 60, writers("m"), fate::written},
      {"only others who leave no id", 45, writers("xyz"), fate::unknown},
      {"a backup was restored", 12, writers("abcdefgh"), fate::unknown},
      {"an id stands across two", 41, "-" + writers("m") + std::string(31, '-'), fate::dead},
      {"far ahead", most, writers("abcdefgh"), fate::unknown},
      {"far behind", least, writers("abcdefgh"), fate::unknown},
  };

  for (const line& each : lines) {
    EXPECT_EQ(fate_of({.key = "k", .version = sent_at, .writer = id('m')},
                      {.values = {}, .version = each.version, .writers = each.writers}),
              each.expected)
        << each.why;
  }
}

TEST(RowState, IsReadFromAnAnswer) {
  const table plain{sql::dialect::sqlite, {.table = "t", .key = "k", .values = {"a", "b"}}};
  const table remembering{sql::dialect::sqlite,
                          {.table = "t", .key = "k", .values = {"a"}, .writers = "w"}};
  const std::int64_t seven = 7;

  EXPECT_FALSE(row_in(plain, {}));
  const auto row = row_in(plain, {.rows = {{"x", std::monostate{}, seven}}});
  ASSERT_TRUE(row);
  EXPECT_EQ(row->values, (values{"x", std::monostate{}}));
  EXPECT_EQ(row->version, 7);
  EXPECT_EQ(row_in(remembering, {.rows = {{"x", seven, "ids"}}})->writers, "ids");
  EXPECT_EQ(row_in(remembering, {.rows = {{"x", seven, std::monostate{}}}})->writers, "");
}

TEST(RowState, RefusesWhatIsNoRowWithAVersion) {
  const table rows{sql::dialect::sqlite,
                   {.table = "t", .key = "k", .values = {"a"}, .writers = "w"}};
  const std::int64_t seven = 7;

  for (const std::vector<std::vector<sql::value>>& bad :
       std::vector<std::vector<std::vector<sql::value>>>{{{"x", seven, ""}, {"x", seven, ""}},
                                                         {{"x", seven}},
                                                         {{"x", "7", ""}},
                                                         {{"x", std::monostate{}, ""}},
                                                         {{"x", seven, seven}},
                                                         {{}}}) {
    try {
      (void)row_in(rows, {.rows = bad});
      ADD_FAILURE();
    } catch (const lock_error& error) {
      EXPECT_EQ(error.code(), errc::store_refused);
    }
  }
}

}  // namespace
}  // namespace sallyport::optimistic
