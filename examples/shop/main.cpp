// Sixteen processes buy until everything is sold, in three ways that sell nothing twice, on SQLite,
// PostgreSQL or MariaDB, and a table shows what each costs when all want one row, and when they want many.
//
//   example_shop [--database ADDRESS] [--store ADDRESS] [--way NAME] [--processes N] [--rows N] [--pieces N]
//
// The database is a new file of SQLite, if none is named; the locks are in `local:`, in the same folder. The
// two tables of this example are dropped and made anew. The exit code says whether all was right.

#include "database.hpp"
#include "ways.hpp"
#include "workers.hpp"
#include <sallyport/sql.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <variant>
#include <vector>

namespace {

struct settings {
  std::string database{};
  std::string store{};
  std::string way{};  // empty: all that are right
  int processes = 16;
  int rows = 0;  // 0: one, and then a hundred
  int pieces = 200;
};

/// A folder for a database that nobody named; gone at the end.
class own_folder {
 public:
  own_folder() {
    std::string name = std::filesystem::temp_directory_path() / "sallyport-shop-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  own_folder(const own_folder&) = delete;
  own_folder& operator=(const own_folder&) = delete;
  ~own_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::int64_t number(database& own, const std::string& query) {
  return std::get<std::int64_t>(own.execute(query).rows.at(0).at(0));
}

std::string item_of(int row) { return "item-" + std::to_string(row); }

void fill_stock(database& own, int rows, int pieces) {
  const std::string engine =
      own.dialect() == sallyport::sql::dialect::mariadb ? " ENGINE=InnoDB" : "";
  const std::string stock = stock_table;
  const std::string sales = sales_table;
  own.execute("DROP TABLE IF EXISTS " + stock);
  own.execute("DROP TABLE IF EXISTS " + sales);
  own.execute("CREATE TABLE " + stock +
              " (item varchar(50) PRIMARY KEY, pieces bigint NOT NULL, version bigint NOT NULL, "
              "writers varchar(256) NOT NULL, fence bigint NOT NULL)" +
              engine);
  // No unique index here, on purpose: it would keep a piece from being sold twice whatever the way, and
  // in a real shop it should.
  own.execute("CREATE TABLE " + sales +
              " (item varchar(50) NOT NULL, number bigint NOT NULL, buyer bigint NOT NULL)" +
              engine);
  for (int row = 0; row < rows; ++row) {
    const int of_this = pieces / rows + (row < pieces % rows ? 1 : 0);
    own.execute("INSERT INTO " + stock + " VALUES ('" + item_of(row) + "', " +
                std::to_string(of_this) + ", 1, '', 0)");
  }
}

/// One process: buys from one row after the other until all are empty.
totals buy_all(const worker_task& task) {
  const auto own = connect(task.database);
  const auto& ways = all_ways();
  const auto chosen = std::find_if(ways.begin(), ways.end(),
                                   [&](const way& each) { return each.name == task.way; });
  if (chosen == ways.end()) throw std::runtime_error("no such way: " + task.way);
  const seller sell = chosen->open(*own, task.store);
  std::vector<std::string> items;
  items.reserve(static_cast<std::size_t>(task.rows));
  // Everybody begins somewhere else, as customers do.
  for (int i = 0; i < task.rows; ++i) {
    items.push_back(item_of((i + task.number * task.rows / task.processes) % task.rows));
  }

  announce_and_wait();
  totals mine;
  while (!items.empty()) {
    std::erase_if(items, [&](const std::string& item) {
      const attempt_to_buy bought = sell(item, task.number);
      mine.conflicts += bought.conflicts;
      mine.sold += bought.sold ? 1 : 0;
      return !bought.sold;
    });
  }
  return mine;
}

/// Runs one way, prints its line, and says whether nothing went wrong.
bool compare(const settings& chosen, const std::string& name, int rows) {
  const auto own = connect(chosen.database);
  fill_stock(*own, rows, chosen.pieces);
  const totals all = run_workers({.database = chosen.database,
                                  .store = chosen.store,
                                  .way = name,
                                  .rows = rows,
                                  .processes = chosen.processes,
                                  .number = 0});

  const std::string sales = sales_table;
  const std::int64_t left =
      number(*own, std::string("SELECT count(*) FROM ") + stock_table + " WHERE pieces <> 0");
  const std::int64_t sold = number(*own, "SELECT count(*) FROM " + sales);
  const std::int64_t once = number(
      *own, "SELECT count(*) FROM (SELECT DISTINCT item, number FROM " + sales + ") AS pieces");
  std::cout << std::left << std::setw(12) << name << std::right << std::setw(6) << rows
            << std::setw(10) << sold << std::setw(14) << std::fixed << std::setprecision(0)
            << static_cast<double>(all.sold) / all.seconds << std::setw(12) << all.conflicts
            << std::setw(13) << sold - once << std::endl;
  return left == 0 && sold == chosen.pieces && once == sold && all.sold == sold;
}

settings read_arguments(const std::vector<std::string>& words) {
  settings out;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    if (i + 1 == words.size()) throw std::runtime_error(words[i] + " needs a value");
    const std::string& value = words[i + 1];
    if (words[i] == "--database") {
      out.database = value;
    } else if (words[i] == "--store") {
      out.store = value;
    } else if (words[i] == "--way") {
      out.way = value;
    } else if (words[i] == "--processes") {
      out.processes = std::clamp(std::stoi(value), 1, 200);
    } else if (words[i] == "--rows") {
      out.rows = std::clamp(std::stoi(value), 1, 10'000);
    } else if (words[i] == "--pieces") {
      out.pieces = std::clamp(std::stoi(value), 1, 10'000'000);
    } else {
      throw std::runtime_error("unknown option " + words[i]);
    }
  }
  return out;
}

bool sell_everything(settings chosen) {
  const own_folder folder;
  if (chosen.database.empty()) chosen.database = "sqlite:" + (folder.path() / "shop.db").string();
  if (chosen.store.empty()) chosen.store = "local:" + (folder.path() / "locks").string();
  std::cout << chosen.processes << " processes, " << chosen.pieces << " pieces, "
            << chosen.database.substr(0, chosen.database.find(':')) << "; locks in "
            << chosen.store.substr(0, chosen.store.find(':')) << "\n"
            << "way           rows      sold    per second   conflicts   sold twice\n";
  const std::vector<int> numbers_of_rows =
      chosen.rows == 0 ? std::vector<int>{1, 100} : std::vector<int>{chosen.rows};
  bool right = true;
  for (const int rows : numbers_of_rows) {
    for (const way& each : all_ways()) {
      const bool wanted =
          chosen.way.empty() ? each.name != std::string_view("careless") : each.name == chosen.way;
      if (wanted) right = compare(chosen, each.name, rows) && right;
    }
  }
  return right;
}

}  // namespace

int main(int count, char** arguments) try {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  if (const auto task = task_of_this_process(words)) {
    report(buy_all(*task));
    return EXIT_SUCCESS;
  }
  if (sell_everything(read_arguments(words))) return EXIT_SUCCESS;
  std::cout << "something was sold twice, or not at all\n";
  return EXIT_FAILURE;
} catch (const std::exception& error) {
  std::cerr << "example_shop: " << error.what() << '\n';
  return EXIT_FAILURE;
}
