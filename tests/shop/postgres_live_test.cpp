#include "tests/kit/postgres_server.hpp"
#include "tests/kit/sql_executors.hpp"
#include "tests/shop/shop_run.hpp"

#include <gtest/gtest.h>

namespace sallyport::shop {
namespace {

constexpr int pieces = 2'000;

class ShopOnPostgres : public testing::Test {
 protected:
  const kit::postgres_server server_;
  kit::postgres_executor database_{server_.address()};
};

TEST_F(ShopOnPostgres, SellsNothingTwice) {
  sells_nothing_twice(server_.address(), database_.executor());
}

TEST_F(ShopOnPostgres, SellsNothingTwiceWithLocksInTheSameDatabase) {
  const order placed{.database = server_.address(),
                     .store = server_.address(),
                     .way = "fenced",
                     .rows = 3,
                     .pieces = 60};
  run sale{placed};

  ASSERT_EQ(sale.wait(), 0) << sale.said();
  expect_sold_out(read_books(database_.executor()), placed);
}

TEST_F(ShopOnPostgres, SurvivesKilledSellersWithoutALock) {
  survives_killed_sellers(server_.address(), database_.executor(), "optimistic", pieces);
}

TEST_F(ShopOnPostgres, SurvivesKilledHoldersOfTheLock) {
  survives_killed_sellers(server_.address(), database_.executor(), "fenced", pieces);
}

}  // namespace
}  // namespace sallyport::shop
