#include <sallyport/error.hpp>
#include <sallyport/optimistic.hpp>
#include <sallyport/sql.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace sallyport::optimistic {
namespace {

const std::string writer(table::writer_bytes, 'a');
const std::string key = "apple";

layout stock() { return {.table = "stock", .key = "item", .values = {"pieces", "price"}}; }

layout remembering() {
  layout names = stock();
  names.schema = "shop";
  names.writers = "writers";
  return names;
}

std::int64_t operator""_n(unsigned long long number) { return static_cast<std::int64_t>(number); }

TEST(OptimisticTable, BindsEverythingThatComesFromOutside) {
  const table rows{sql::dialect::sqlite, stock()};
  const values to{5_n, std::monostate{}};

  EXPECT_EQ(rows.read(key),
            (sql::statement{"SELECT r.\"pieces\", r.\"price\", r.\"version\" FROM \"stock\" AS r "
                            "WHERE r.\"item\" = ?",
                            {key}}));
  EXPECT_EQ(rows.write(key, 7, to, writer),
            (sql::statement{"UPDATE \"stock\" SET \"pieces\" = ?, \"price\" = ?, \"version\" = "
                            "\"version\" + 1 WHERE \"item\" = ? AND \"version\" = ?",
                            {5_n, std::monostate{}, key, 7_n}}));
  EXPECT_EQ(rows.seal(key, 7), (sql::statement{"UPDATE \"stock\" SET \"version\" = \"version\" + 1 "
                                               "WHERE \"item\" = ? AND \"version\" = ?",
                                               {key, 7_n}}));
  EXPECT_EQ(rows.create(key, 7, to),
            (sql::statement{"INSERT INTO \"stock\" (\"item\", \"pieces\", \"price\", \"version\") "
                            "VALUES (?, ?, ?, ?) ON CONFLICT (\"item\") DO NOTHING",
                            {key, 5_n, std::monostate{}, 7_n}}));
}

TEST(OptimisticTable, SpeaksPostgresAndMariadb) {
  const table postgres{sql::dialect::postgres, remembering()};
  const table mariadb{sql::dialect::mariadb, remembering()};
  const values to{5_n, 6_n};

  EXPECT_EQ(postgres.read(key),
            (sql::statement{"SELECT r.\"pieces\", r.\"price\", r.\"version\", r.\"writers\" FROM "
                            "\"shop\".\"stock\" AS r WHERE r.\"item\" = $1",
                            {key}}));
  EXPECT_EQ(postgres.write(key, 7, to, writer),
            (sql::statement{
                "UPDATE \"shop\".\"stock\" SET \"pieces\" = $1, \"price\" = $2, \"version\" = "
                "\"version\" + 1, \"writers\" = left(CAST($3 AS text) || COALESCE(\"writers\", '')"
                ", 256) WHERE \"item\" = $4 AND \"version\" = $5",
                {5_n, 6_n, writer, key, 7_n}}));
  EXPECT_EQ(mariadb.write(key, 7, to, writer),
            (sql::statement{"UPDATE `shop`.`stock` SET `pieces` = ?, `price` = ?, `version` = "
                            "`version` + 1, `writers` = LEFT(CONCAT(?, COALESCE(`writers`, '')), "
                            "256) WHERE `item` = ? AND `version` = ?",
                            {5_n, 6_n, writer, key, 7_n}}));
  EXPECT_EQ(mariadb.create(key, 7, to),
            (sql::statement{"INSERT INTO `shop`.`stock` (`item`, `pieces`, `price`, `version`, "
                            "`writers`) VALUES (?, ?, ?, ?, '') ON DUPLICATE KEY UPDATE `item` = "
                            "`item`",
                            {key, 5_n, 6_n, 7_n}}));
}

TEST(OptimisticTable, QuotesNamesThatLookLikeSql) {
  const table rows{
      sql::dialect::sqlite,
      {.table = "x\" WHERE 1 --", .key = "k", .values = {"v\"; DROP TABLE y"}, .version = "n"}};

  EXPECT_EQ(
      rows.read(key).text,
      "SELECT r.\"v\"\"; DROP TABLE y\", r.\"n\" FROM \"x\"\" WHERE 1 --\" AS r WHERE r.\"k\" "
      "= ?");
}

TEST(OptimisticTable, RefusesNamesThatCanNotBe) {
  const auto refused = [](const layout& names) {
    try {
      const table rows{sql::dialect::postgres, names};
    } catch (const lock_error& error) {
      return error.code() == errc::bad_option;
    }
    return false;
  };
  layout names = stock();
  EXPECT_FALSE(refused(names));

  names.table = "";
  EXPECT_TRUE(refused(names));
  names = stock();
  names.key = std::string("a\0b", 3);
  EXPECT_TRUE(refused(names));
  names = stock();
  names.values = {};
  EXPECT_TRUE(refused(names));
  names.values.assign(table::max_values + 1, "v");
  EXPECT_TRUE(refused(names));
  for (const char* twice : {"item", "version", "pieces"}) {
    names = stock();
    names.writers = twice;
    EXPECT_TRUE(refused(names)) << twice;
  }
  names = stock();
  names.schema = std::string(sql::max_identifier_bytes + 1, 'x');
  EXPECT_TRUE(refused(names));
}

TEST(OptimisticTable, RefusesAnotherNumberOfValues) {
  const table rows{sql::dialect::sqlite, stock()};

  EXPECT_THROW((void)rows.write(key, 1, {5_n}, writer), lock_error);
  EXPECT_THROW((void)rows.create(key, 1, {5_n, 5_n, 5_n}), lock_error);
  EXPECT_THROW((void)rows.write(key, 1, {5_n, 5_n}, "short"), lock_error);
}

}  // namespace
}  // namespace sallyport::optimistic
