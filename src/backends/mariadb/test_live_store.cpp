#include "backends/mariadb/test_live_store.hpp"

namespace sallyport::mariadb_live {

testing::AssertionResult row_is_waited_for(const sql_server& server) {
  // Not innodb_trx: who looks at that all the time sees the same picture all the time.
  std::string waiting;
  const auto waits = [&] {
    waiting = server.rows("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'").front()[1];
    return waiting != "0";
  };
  if (kit::eventually(waits)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << waiting << " wait for a row";
}

testing::AssertionResult stripe_is_free(const sql_server& server, const std::string& name) {
  const auto free = [&] {
    const auto probe = server.connect();
    probe->rows("START TRANSACTION");
    try {
      probe->rows("SELECT * FROM sallyport_stripe WHERE id = (" + stripe_of(name) +
                  ") FOR UPDATE NOWAIT");
    } catch (const kit::kit_error&) {
      return false;
    }
    return true;
  };
  if (kit::eventually(free)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "somebody keeps the stripe of " << name;
}

void kill_all(const sql_server& server, const std::string& how, const std::string& user) {
  const auto all =
      server.rows("SELECT id FROM information_schema.processlist WHERE user = '" + user + "'");
  for (const auto& each : all) server.rows("KILL " + how + " " + each.front());
  if (how != "CONNECTION") return;
  for (const auto& each : all) {
    EXPECT_TRUE(kit::eventually([&] {
      return server.value("SELECT COUNT(*) FROM information_schema.processlist WHERE id = " +
                          each.front()) == "0";
    }));
  }
}

}  // namespace sallyport::mariadb_live

namespace sallyport::sql_live {

std::unique_ptr<sql_server> start_server(const kit::shifted_clock* clock) {
  return std::make_unique<kit::mariadb_server>(kit::mariadb_options{.clock = clock});
}

std::unique_ptr<sql_server> start_server_in(const std::filesystem::path& parent) {
  return std::make_unique<kit::mariadb_server>(kit::mariadb_options{.parent = parent});
}

std::string address_at(std::uint16_t port) { return kit::mariadb_server::address_at(port); }

std::string with_user(const sql_server& server, const std::string& user,
                      const std::string& options) {
  return "mariadb://" + user + "@127.0.0.1:" + std::to_string(server.port()) + "/test" + options;
}

std::string in_space(const std::string& space) { return "?prefix=" + space + "_"; }

std::string table(const std::string& name, const std::string& space) { return space + "_" + name; }

void sweep(const sql_server& server, const std::string& space) {
  server.rows("CALL " + space + "_sweep(1)");
}

void make_user(const sql_server& server, const std::string& user) {
  server.rows("CREATE USER " + user);
  server.rows("GRANT ALL ON test.* TO " + user);
}

int connections_of(const sql_server& server, const std::string& user) {
  return std::stoi(server.value(
      "SELECT COUNT(*) FROM information_schema.processlist WHERE user = '" + user + "'"));
}

void end_connections(const sql_server& server, const std::string& user) {
  mariadb_live::kill_all(server, "CONNECTION", user);
}

bool waiters_are_told() { return false; }

void leave_dead_reader(const sql_server& server, const std::string& name, int number) {
  server.rows("CALL sallyport_acquire('" + name + "', UNHEX(MD5('" + std::to_string(number) +
              "')), 2, 1, 50, 100, 100, 1, 0, 1, 1, 0, 7, '', '', '')");
}

}  // namespace sallyport::sql_live
