#include "tests/contract/kit/shared_server.hpp"
#include "tests/contract/kit/store_under_test.hpp"
#include "tests/kit/certificates.hpp"
#include "tests/kit/mariadb_server.hpp"
#include <sallyport/client.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

// SALLYPORT_MARIADB_SETUP says how the server is reached, and by whom:
//   tcp    (default) a plain connection
//   unix   a unix socket
//   tls    TLS, with certificates of both sides
//   least  a user with the rights that `sallyport schema` gives, and no others
namespace sallyport::contract {
namespace {

struct setup {
  std::unique_ptr<kit::certificates> files = {};
  std::unique_ptr<kit::mariadb_server> server = {};
  std::string begin = {};
  std::string options = {};
  bool least = false;
};

setup chosen() {
  const std::string name = chosen_setup("SALLYPORT_MARIADB_SETUP", {"tcp", "unix", "tls", "least"});
  setup made;
  kit::mariadb_options how;
  if (name == "tls") {
    made.files = std::make_unique<kit::certificates>();
    how.tls =
        kit::sql_tls{made.files->server.certificate, made.files->server.key, made.files->authority};
  }
  made.server = std::make_unique<kit::mariadb_server>(how);
  made.begin = made.server->address();
  if (name == "unix") {
    made.begin = "mariadb://root@/test";
    made.options = "&socket=" + made.server->socket().string();
  } else if (name == "tls") {
    made.begin = "mariadb://root@localhost:" + std::to_string(made.server->port()) + "/test";
    made.options = "&tls=yes&ca_file=" + made.files->authority.string() +
                   "&cert_file=" + made.files->client.certificate.string() +
                   "&key_file=" + made.files->client.key.string();
  } else if (name == "least") {
    made.least = true;
    made.begin = "mariadb://app@127.0.0.1:" + std::to_string(made.server->port()) + "/test";
    made.server->rows("CREATE USER app");
  }
  return made;
}

/// The same server for all tests of a process.
const setup& the_setup() {
  static const setup running = chosen();
  return running;
}

/// What dead clients left goes when somebody sweeps after their leases.
std::vector<std::string> rows_with(kit::sql_probe& probe, const std::string& prefix) {
  probe.rows("CALL " + prefix + "sweep(1)");
  std::vector<std::string> all;
  const auto rows = probe.rows("SELECT name FROM " + prefix + "lock UNION ALL SELECT name FROM " +
                               prefix + "queue");
  for (const auto& each : rows) all.push_back(each.front());
  return all;
}

std::size_t row_count(const std::string& prefix) {
  const auto probe = the_setup().server->connect();
  return std::stoul(probe->value("SELECT (SELECT count(*) FROM " + prefix +
                                 "lock) + (SELECT count(*) FROM " + prefix + "queue)"));
}

void remove_tables(const std::string& prefix) {
  const auto probe = the_setup().server->connect();
  if (probe->value("SHOW TABLES LIKE '" + prefix + "state'").empty()) return;
  expect_nothing_left("rows", [&] { return rows_with(*probe, prefix); });
  probe->rows("DROP TABLE " + prefix + "lock, " + prefix + "queue, " + prefix + "state, " + prefix +
              "stripe");
}

/// Tables with a prefix.
std::unique_ptr<fresh_store> make() {
  const std::string prefix = "c" + std::to_string(next_store_number()) + "_";
  const std::string address = the_setup().begin + "?prefix=" + prefix + the_setup().options;
  if (the_setup().least) {
    kit::mariadb_probe{{.port = the_setup().server->port()}}.script(client::schema(address));
  }
  return std::make_unique<plain_store>(
      address, [prefix] { remove_tables(prefix); }, [prefix] { return row_count(prefix); });
}

}  // namespace

const store_under_test& the_store() {
  static const store_under_test mariadb{
      .name = "mariadb",
      .make = &make,
      .claims = all_claims(),
      .short_lease = std::chrono::milliseconds{400},
      .clients_share = true,
      .processes_share = true,
      .waiters_ask = true,
      .unreachable_address = "mariadb://root@127.0.0.1:1/test",
      .server =
          server_switch{[] { the_setup().server->kill(); }, [] { the_setup().server->start(); }},
  };
  return mariadb;
}

}  // namespace sallyport::contract
