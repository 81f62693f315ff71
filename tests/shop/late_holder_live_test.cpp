#include "examples/shop/database.hpp"
#include "examples/shop/ways.hpp"
#include "tests/kit/temporary_folder.hpp"
#include "tests/kit/waiting.hpp"
#include <sallyport/sallyport.hpp>
#include <sallyport/sql.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <semaphore>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::shop {
namespace {

/// A connection that does something before it first begins a transaction: between reading and writing.
class pausing final : public database {
 public:
  pausing(const std::string& path, std::function<void()> before)
      : inner_(connect_to_sqlite(path)), before_(std::move(before)) {}

  [[nodiscard]] sql::dialect dialect() const override { return inner_->dialect(); }
  sql::answer execute(const sql::statement& one) override {
    if (one.text.starts_with("BEGIN")) std::exchange(before_, [] {})();
    return inner_->execute(one);
  }

 private:
  std::unique_ptr<database> inner_;
  std::function<void()> before_;
};

seller under_lock(database& own) {
  const auto& ways = all_ways();
  return std::find_if(ways.begin(), ways.end(),
                      [](const way& each) { return each.name == std::string_view("fenced"); })
      ->open(own, "memory:late-holder-test");
}

bool taken(std::binary_semaphore& signal) { return signal.try_acquire_for(kit::patience); }

// The first holder reads and stands still; its lease ends; the second reads; the first writes; the second
// writes. If a holder showed its token only when it writes, both would sell the same piece.
TEST(LateHolder, IsRefusedAlsoWhileTheNewerOneIsStillThinking) {
  const kit::temporary_folder folder{"shop"};
  const std::string path = folder.path() / "shop.db";
  const auto books = connect_to_sqlite(path);
  books->database::execute(
      "CREATE TABLE sallyport_example_stock (item text PRIMARY KEY, pieces bigint, fence bigint)");
  books->database::execute(
      "CREATE TABLE sallyport_example_sales (item text, number bigint, buyer bigint)");
  books->database::execute("INSERT INTO sallyport_example_stock VALUES ('apple', 5, 0)");
  std::binary_semaphore first_has_read{0};
  std::binary_semaphore second_has_read{0};

  std::uint32_t refused = 0;
  std::thread first([&] {
    pausing own{path, [&] {
                  first_has_read.release();
                  EXPECT_TRUE(taken(second_has_read));
                }};
    const seller sell = under_lock(own);
    refused = sell("apple", 1).conflicts;
  });
  EXPECT_TRUE(taken(first_has_read));
  const auto keeper = client::open("memory:late-holder-test");
  keeper.break_lock("shop/apple", keeper.who("shop/apple").value().holders.at(0).token,
                    break_style::at_once);
  std::thread second([&] {
    pausing own{path, [&] {
                  second_has_read.release();
                  // Until the first one was refused, and stands in line again.
                  EXPECT_TRUE(kit::eventually([&] {
                    const auto seen = keeper.who("shop/apple");
                    return seen && !seen->waiters.empty();
                  }));
                }};
    EXPECT_TRUE(under_lock(own)("apple", 2).sold);
  });
  first.join();
  second.join();

  const sql::answer sales =
      books->database::execute("SELECT number, buyer FROM sallyport_example_sales ORDER BY number");
  EXPECT_EQ(refused, 1U);
  ASSERT_EQ(sales.rows.size(), 2U);
  EXPECT_EQ(sales.rows[0], (std::vector<sql::value>{std::int64_t{4}, std::int64_t{1}}));
  EXPECT_EQ(sales.rows[1], (std::vector<sql::value>{std::int64_t{5}, std::int64_t{2}}));
}

}  // namespace
}  // namespace sallyport::shop
