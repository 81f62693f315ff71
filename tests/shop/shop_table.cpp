// Prints the table of docs/choosing.md: examples/shop on SQLite, PostgreSQL and MariaDB, all of them in memory.
// usage: shop_table [PIECES]

#include "tests/kit/mariadb_server.hpp"
#include "tests/kit/postgres_server.hpp"
#include "tests/kit/temporary_folder.hpp"
#include "tests/kit/unprivileged.hpp"
#include "tests/shop/shop_run.hpp"

#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

namespace {

using namespace sallyport;

int sell(const std::string& database, const std::string& store, const std::string& way,
         int pieces) {
  // 0 rows: few and many, one after the other.
  shop::run sale{{.database = database, .store = store, .way = way, .rows = 0, .pieces = pieces}};
  const int code = sale.wait();
  std::cout << sale.said() << std::endl;
  return code;
}

}  // namespace

int main(int count, char** arguments) try {
  const int pieces = count > 1 ? std::stoi(arguments[1]) : 2000;
  const kit::temporary_folder folder{"shop", kit::in_memory()};
  int failed = sell("sqlite:" + (folder.path() / "shop.db").string(), {}, {}, pieces);
  {
    const kit::postgres_server server;
    failed += sell(server.address(), {}, {}, pieces);
    failed += sell(server.address(), server.address(), "fenced", pieces);
    sell(server.address(), {}, "careless", pieces);  // fails: that is the point
  }
  const kit::mariadb_server server;
  failed += sell(server.address(), {}, {}, pieces);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const std::exception& error) {
  std::cerr << "shop_table: " << error.what() << '\n';
  return EXIT_FAILURE;
}
