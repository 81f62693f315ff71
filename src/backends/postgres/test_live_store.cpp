#include "backends/postgres/test_live_store.hpp"

#include <memory>
#include <string>

namespace sallyport::sql_live {

std::unique_ptr<sql_server> start_server(const kit::shifted_clock* clock) {
  return std::make_unique<kit::postgres_server>(kit::postgres_options{.clock = clock});
}

std::unique_ptr<sql_server> start_server_in(const std::filesystem::path& parent) {
  return std::make_unique<kit::postgres_server>(kit::postgres_options{.parent = parent});
}

std::string address_at(std::uint16_t port) { return kit::postgres_server::address_at(port); }

std::string with_user(const sql_server& server, const std::string& user,
                      const std::string& options) {
  return "postgres://" + user + "@127.0.0.1:" + std::to_string(server.port()) + "/postgres" +
         options;
}

std::string in_space(const std::string& space) { return "?schema=" + space; }

std::string table(const std::string& name, const std::string& space) { return space + "." + name; }

void sweep(const sql_server& server, const std::string& space) {
  server.rows("SELECT " + space + ".sweep(true, true)");
}

void make_user(const sql_server& server, const std::string& user) {
  server.rows("CREATE ROLE " + user + " LOGIN SUPERUSER");
}

int connections_of(const sql_server& server, const std::string& user) {
  return std::stoi(
      server.value("SELECT count(*) FROM pg_stat_activity WHERE usename = '" + user + "'"));
}

void end_connections(const sql_server& server, const std::string& user) {
  server.rows("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = '" +
              user + "'");
}

bool waiters_are_told() { return true; }

void leave_dead_reader(const sql_server& server, const std::string& name, int number) {
  server.rows("SELECT sallyport.acquire('" + name + "', decode(md5('" + std::to_string(number) +
              "'), 'hex'), 2::smallint, 1::smallint, 50, 100, 100, true, 1, 1, 0, true, 7, 7, "
              "'', '', '')");
}

}  // namespace sallyport::sql_live
