#include <sallyport/error.hpp>
#include <sallyport/sql.hpp>

#include <gtest/gtest.h>

#include <string>

namespace sallyport::sql {
namespace {

TEST(SqlIdentifier, StandsInTheQuotesOfItsDialect) {
  EXPECT_EQ(quoted(dialect::postgres, "accounts"), "\"accounts\"");
  EXPECT_EQ(quoted(dialect::sqlite, "a\"b`c"), "\"a\"\"b`c\"");
  EXPECT_EQ(quoted(dialect::mariadb, "a\"b`c"), "`a\"b``c`");
}

TEST(SqlIdentifier, IsRefusedWhenNoServerCouldHaveIt) {
  EXPECT_NO_THROW((void)quoted(dialect::postgres, std::string(max_identifier_bytes, 'x')));

  for (const std::string& bad :
       {std::string(), std::string(max_identifier_bytes + 1, 'x'), std::string("a\0b", 3),
        std::string("a\nb"), std::string("\xff")}) {
    EXPECT_THROW((void)quoted(dialect::mariadb, bad), lock_error);
  }
}

TEST(SqlPlaceholder, IsNumberedInPostgresOnly) {
  EXPECT_EQ(placeholder(dialect::postgres, 12), "$12");
  EXPECT_EQ(placeholder(dialect::mariadb, 12), "?");
  EXPECT_EQ(placeholder(dialect::sqlite, 12), "?");
}

}  // namespace
}  // namespace sallyport::sql
