#include "tests/kit/sql_executors.hpp"
#include "tests/kit/temporary_folder.hpp"
#include "tests/kit/unprivileged.hpp"
#include "tests/shop/shop_run.hpp"

#include <gtest/gtest.h>

#include <string>

namespace sallyport::shop {
namespace {

constexpr int pieces = 20'000;

class ShopOnSqlite : public testing::Test {
 protected:
  kit::temporary_folder folder_{"shop-db", kit::in_memory()};
  const std::string path_ = folder_.path() / "shop.db";
  kit::sqlite_executor database_{path_};
};

TEST_F(ShopOnSqlite, SellsNothingTwice) {
  sells_nothing_twice("sqlite:" + path_, database_.executor());
}

TEST_F(ShopOnSqlite, SurvivesKilledSellersWithoutALock) {
  survives_killed_sellers("sqlite:" + path_, database_.executor(), "optimistic", pieces);
}

TEST_F(ShopOnSqlite, SurvivesKilledHoldersOfTheLock) {
  survives_killed_sellers("sqlite:" + path_, database_.executor(), "fenced", pieces);
}

// The proof that these books would show it.
TEST_F(ShopOnSqlite, ShowsInItsBooksWhatWasSoldTwice) {
  const order placed{.database = "sqlite:" + path_, .way = "careless", .processes = 1, .pieces = 5};
  run sale{placed};
  ASSERT_EQ(sale.wait(), 0) << sale.said();
  expect_sold_out(read_books(database_.executor()), placed);

  database_.run("INSERT INTO sallyport_example_sales VALUES ('item-0', 3, 99)");
  database_.run("UPDATE sallyport_example_stock SET pieces = -1");

  const books after = read_books(database_.executor());
  EXPECT_EQ(after.rows_not_empty, 1);
  EXPECT_EQ(after.sales, 6);
  EXPECT_EQ(after.different_sales, 5);
  EXPECT_EQ(after.items_with_gaps, 1);
}

}  // namespace
}  // namespace sallyport::shop
