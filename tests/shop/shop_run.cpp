#include "tests/shop/shop_run.hpp"

#include "tests/kit/sql_executors.hpp"
#include "tests/kit/waiting.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/types.h>
#include <vector>

namespace sallyport::shop {

namespace {

/// Longer than any of these runs takes, on a busy machine, too.
constexpr std::chrono::seconds whole_run{90};

std::vector<pid_t> children_of(pid_t parent) {
  const std::string process = std::to_string(parent);
  std::ifstream file{"/proc/" + process + "/task/" + process + "/children"};
  std::vector<pid_t> out;
  for (pid_t each = 0; file >> each;) out.push_back(each);
  return out;
}

std::int64_t number(const sql::executor& database, const std::string& query) {
  return kit::first_number(database({.text = query, .parameters = {}}));
}

}  // namespace

books read_books(const sql::executor& database) {
  return {.rows_not_empty =
              number(database, "SELECT count(*) FROM sallyport_example_stock WHERE pieces <> 0"),
          .sales = number(database, "SELECT count(*) FROM sallyport_example_sales"),
          .different_sales = number(database,
                                    "SELECT count(*) FROM (SELECT DISTINCT item, number FROM "
                                    "sallyport_example_sales) AS different"),
          .items_with_gaps = number(
              database,
              "SELECT count(*) FROM (SELECT item FROM sallyport_example_sales GROUP BY item HAVING "
              "count(*) <> max(number) OR min(number) <> 1) AS gaps")};
}

void expect_sold_out(const books& after, const order& placed) {
  EXPECT_EQ(after.rows_not_empty, 0);
  EXPECT_EQ(after.sales, placed.pieces);
  EXPECT_EQ(after.different_sales, placed.pieces);
  EXPECT_EQ(after.items_with_gaps, 0);
}

run::run(const order& placed) {
  const std::string store =
      placed.store.empty() ? "local:" + (folder_.path() / "locks").string() : placed.store;
  std::vector<std::string> arguments{"--database",  placed.database,
                                     "--store",     store,
                                     "--processes", std::to_string(placed.processes),
                                     "--pieces",    std::to_string(placed.pieces)};
  if (!placed.way.empty()) arguments.insert(arguments.end(), {"--way", placed.way});
  if (placed.rows != 0) {
    arguments.insert(arguments.end(), {"--rows", std::to_string(placed.rows)});
  }
  program_ = std::make_unique<kit::child_process>(kit::child_options{.program = SALLYPORT_SHOP,
                                                                     .called_as = {},
                                                                     .arguments = arguments,
                                                                     .environment = {},
                                                                     .folder = folder_.path(),
                                                                     .log = folder_.path() / "log",
                                                                     .run_as = {}});
}

int run::wait() { return program_->wait_for_end(whole_run).value(); }

std::string run::said() const {
  std::ifstream log{program_->log()};
  return {std::istreambuf_iterator<char>{log}, {}};
}

int run::kill_sellers(int number) const {
  int killed = 0;
  for (const pid_t each : children_of(program_->pid())) {
    // Children of our child that it has not waited for: nobody else can have the number.
    if (killed < number && ::kill(each, SIGKILL) == 0) ++killed;
  }
  return killed;
}

void sells_nothing_twice(const std::string& address, const sql::executor& database,
                         const std::string& store) {
  for (const char* way : {"atomic", "optimistic", "fenced"}) {
    const order placed{.database = address, .store = store, .way = way};
    SCOPED_TRACE(way);

    run sale{placed};

    ASSERT_EQ(sale.wait(), 0) << sale.said();
    expect_sold_out(read_books(database), placed);
  }
}

void survives_killed_sellers(const std::string& address, const sql::executor& database,
                             const std::string& way, int pieces) {
  const order placed{.database = address, .way = way, .rows = 3, .pieces = pieces};
  run sale{placed};
  ASSERT_TRUE(kit::eventually([&] {
    const auto sold = number(database, "SELECT count(*) FROM sallyport_example_sales");
    return sold > 0 && sold < placed.pieces;
  })) << sale.said();

  const int killed = sale.kill_sellers(placed.processes / 2);

  EXPECT_GE(killed, 1);
  EXPECT_NE(sale.wait(), 0) << "nobody missed the sellers";  // the program tells that some failed
  expect_sold_out(read_books(database), placed);
}

}  // namespace sallyport::shop
