#include "tests/contract/kit/shared_server.hpp"
#include "tests/contract/kit/store_under_test.hpp"
#include "tests/kit/postgres_server.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// SALLYPORT_POSTGRES_SETUP says how the server is reached, and what is promised:
//   tcp      (default) a plain connection
//   unix     a unix socket
//   latin1   a database whose encoding is not UTF-8
//   relaxed  durable=no
//   pooled   through a pgbouncer in transaction mode
namespace sallyport::contract {
namespace {

struct setup {
  std::unique_ptr<kit::postgres_server> server;
  std::unique_ptr<kit::pgbouncer> pooler = {};
  std::string begin;
  std::string options = {};
};

setup chosen() {
  const std::string name =
      chosen_setup("SALLYPORT_POSTGRES_SETUP", {"tcp", "unix", "latin1", "relaxed", "pooled"});
  kit::postgres_options how;
  if (name == "latin1") how.encoding = "LATIN1";
  auto server = std::make_unique<kit::postgres_server>(how);
  setup made{.server = std::move(server), .begin = {}};
  made.begin = made.server->address();
  if (name == "unix") {
    made.begin = "postgres://postgres@/postgres";
    made.options =
        "&host=" + made.server->folder().string() + "&port=" + std::to_string(made.server->port());
  } else if (name == "relaxed") {
    made.options = "&durable=no";
  } else if (name == "pooled") {
    made.pooler = std::make_unique<kit::pgbouncer>(*made.server, "transaction");
    made.begin = made.pooler->address();
  }
  return made;
}

/// The same server for all tests of a process.
const setup& the_setup() {
  static const setup running = chosen();
  return running;
}

/// What dead clients left goes when somebody sweeps after their leases.
std::vector<std::string> rows_in(kit::sql_probe& probe, const std::string& schema) {
  probe.rows("SELECT " + schema + ".sweep(true, true)");
  std::vector<std::string> all;
  const auto rows = probe.rows("SELECT name FROM " + schema + ".lock UNION ALL SELECT name FROM " +
                               schema + ".queue");
  for (const auto& each : rows) all.push_back(each.front());
  return all;
}

std::size_t row_count(const std::string& schema) {
  const auto probe = the_setup().server->connect();
  return std::stoul(probe->value("SELECT (SELECT count(*) FROM " + schema +
                                 ".lock) + (SELECT count(*) FROM " + schema + ".queue)"));
}

void remove_schema(const std::string& schema) {
  const auto probe = the_setup().server->connect();
  if (probe->value("SELECT to_regclass('" + schema + ".lock')").empty()) return;
  expect_nothing_left("rows", [&] { return rows_in(*probe, schema); });
  probe->rows("DROP SCHEMA " + schema + " CASCADE");
}

std::unique_ptr<fresh_store> make() {
  const std::string schema = "contract_" + std::to_string(next_store_number());
  return std::make_unique<plain_store>(
      the_setup().begin + "?schema=" + schema + the_setup().options,
      [schema] { remove_schema(schema); }, [schema] { return row_count(schema); });
}

/// A pooler would have to be told too.
std::optional<server_switch> the_switch() {
  if (the_setup().pooler) return std::nullopt;
  return server_switch{[] { the_setup().server->kill(); }, [] { the_setup().server->start(); }};
}

}  // namespace

const store_under_test& the_store() {
  static const store_under_test postgres{
      .name = "postgres",
      .make = &make,
      .claims = all_claims(),
      .short_lease = std::chrono::milliseconds{400},
      .clients_share = true,
      .processes_share = true,
      .unreachable_address = "postgres://postgres@127.0.0.1:1/postgres",
      .server = the_switch(),
  };
  return postgres;
}

}  // namespace sallyport::contract
