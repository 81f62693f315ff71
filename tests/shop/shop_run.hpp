#pragma once

#include "tests/kit/child_process.hpp"
#include "tests/kit/temporary_folder.hpp"
#include <sallyport/sql.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// Runs examples/shop and looks at its tables from outside.

namespace sallyport::shop {

/// What is to be sold, how, and where.
struct order {
  std::string database;
  std::string store{};  // empty: an embedded one of its own
  std::string way{};    // empty: all that are right
  int processes = 16;
  int rows = 1;  // 0: one, and then many
  int pieces = 150;
};

/// What the tables say.
struct books {
  std::int64_t rows_not_empty = 0;  // of the stock; also those that were oversold
  std::int64_t sales = 0;
  std::int64_t different_sales = 0;
  /// Items of which not each piece was sold, from the first number to the last.
  std::int64_t items_with_gaps = 0;
};

[[nodiscard]] books read_books(const sql::executor& database);

/// What they have to say in the end.
void expect_sold_out(const books& after, const order& placed);

/// One run of the example.
class run {
 public:
  explicit run(const order& placed);

  /// Its exit code.
  [[nodiscard]] int wait();
  /// What it has printed.
  [[nodiscard]] std::string said() const;
  /// SIGKILL for so many of its sellers, in the middle of whatever they do. How many there were.
  int kill_sellers(int number) const;

 private:
  const kit::temporary_folder folder_{"shop"};
  std::unique_ptr<kit::child_process> program_;
};

/// Sells everything in every way that is right, while everybody wants the same row.
void sells_nothing_twice(const std::string& address, const sql::executor& database,
                         const std::string& store = {});
/// The same while half of the sellers are killed. `pieces`: as many as keep them busy for seconds.
void survives_killed_sellers(const std::string& address, const sql::executor& database,
                             const std::string& way, int pieces);

}  // namespace sallyport::shop
