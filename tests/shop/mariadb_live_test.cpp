#include "tests/kit/mariadb_server.hpp"
#include "tests/kit/sql_executors.hpp"
#include "tests/shop/shop_run.hpp"

#include <gtest/gtest.h>

namespace sallyport::shop {
namespace {

constexpr int pieces = 3'000;

class ShopOnMariadb : public testing::Test {
 protected:
  const kit::mariadb_server server_;
  kit::mariadb_executor database_{{.port = server_.port()}};
};

TEST_F(ShopOnMariadb, SellsNothingTwice) {
  sells_nothing_twice(server_.address(), database_.executor());
}

TEST_F(ShopOnMariadb, SurvivesKilledSellersWithoutALock) {
  survives_killed_sellers(server_.address(), database_.executor(), "optimistic", pieces);
}

TEST_F(ShopOnMariadb, SurvivesKilledHoldersOfTheLock) {
  survives_killed_sellers(server_.address(), database_.executor(), "fenced", pieces);
}

}  // namespace
}  // namespace sallyport::shop
