#include "tests/kit/mariadb_server.hpp"

#include "tests/kit/unprivileged.hpp"

#include <csignal>
#include <fstream>
#include <mysql.h>
#include <sstream>
#include <utility>

namespace sallyport::kit {

namespace {

constexpr const char* mariadb_program = SALLYPORT_MARIADB_PROGRAM;
constexpr const char* mariadb_share = SALLYPORT_MARIADB_SHARE;
constexpr unsigned connect_patience_s = 10;

}  // namespace

struct mariadb_probe::handle {
  MYSQL* connection = nullptr;
};

mariadb_probe::mariadb_probe(const mariadb_place& where) : handle_(std::make_unique<handle>()) {
  MYSQL* const made = mysql_init(nullptr);
  mysql_options(made, MYSQL_OPT_CONNECT_TIMEOUT, &connect_patience_s);
  if (mysql_real_connect(made, "127.0.0.1", where.user.c_str(), where.password.c_str(),
                         where.database.c_str(), where.port, nullptr,
                         CLIENT_MULTI_RESULTS) == nullptr) {
    const std::string why = mysql_error(made);
    mysql_close(made);
    throw kit_error("no connection: " + why);
  }
  handle_->connection = made;
}

mariadb_probe::~mariadb_probe() { mysql_close(handle_->connection); }

void mariadb_probe::begin(const std::string& sql) {
  if (mysql_send_query(handle_->connection, sql.data(), sql.size()) != 0) {
    throw kit_error(mysql_error(handle_->connection));
  }
}

sql_rows mariadb_probe::result() {
  sql_rows all;
  if (mysql_read_query_result(handle_->connection) != 0) {
    throw kit_error(mysql_error(handle_->connection));
  }
  for (bool first = true;; first = false) {
    MYSQL_RES* const one = mysql_store_result(handle_->connection);
    const unsigned columns = one == nullptr ? 0 : mysql_num_fields(one);
    while (MYSQL_ROW row = one == nullptr ? nullptr : mysql_fetch_row(one)) {
      const unsigned long* const lengths = mysql_fetch_lengths(one);
      if (!first) continue;
      auto& values = all.emplace_back();
      for (unsigned i = 0; i < columns; ++i) {
        values.push_back(row[i] == nullptr ? "NULL" : std::string(row[i], lengths[i]));
      }
    }
    mysql_free_result(one);
    const int more = mysql_next_result(handle_->connection);
    if (more > 0) throw kit_error(mysql_error(handle_->connection));
    if (more < 0) return all;
  }
}

void mariadb_probe::script(const std::string& text) {
  std::istringstream lines(text);
  std::string delimiter = ";";
  std::string statement;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("DELIMITER ")) {
      delimiter = line.substr(line.find(' ') + 1);
      continue;
    }
    statement += line;
    statement += '\n';
    const bool comment = line.starts_with("--");
    if (comment || line.empty() || !line.ends_with(delimiter)) continue;
    statement.resize(statement.size() - delimiter.size() - 1);
    rows(statement);
    statement.clear();
  }
}

std::uint64_t mariadb_probe::connection() const { return mysql_thread_id(handle_->connection); }

std::string mariadb_server::address_at(std::uint16_t port) {
  return "mariadb://root@127.0.0.1:" + std::to_string(port) + "/test";
}

std::unique_ptr<sql_probe> mariadb_server::connect() const {
  return std::make_unique<mariadb_probe>(mariadb_place{.port = port()});
}

mariadb_server::mariadb_server(mariadb_options options)
    : sql_server({.name = "MariaDB", .program = mariadb_program, .clean_end = SIGTERM}, "maria",
                 options.parent.empty() ? in_memory() : options.parent, options.clock),
      options_(std::move(options)) {
  const auto data = folder() / "data";
  std::filesystem::create_directory(data);
  give_away(data);
  if (options_.tls) keep(*options_.tls);
  make_system_tables();
  start();
}

std::vector<std::string> mariadb_server::settings() const {
  const std::string share = mariadb_share;
  std::vector<std::string> all{
      "--no-defaults",
      "--datadir=" + (folder() / "data").string(),
      "--lc-messages-dir=" + share,
      "--character-sets-dir=" + share + "/charsets",
      // Enough of a log that nobody ever has to wait for a checkpoint, and no io_uring, which not every
      // machine has.
      "--innodb-log-file-size=32M",
      "--innodb-buffer-pool-size=32M",
      "--innodb-use-native-aio=0",
      "--innodb-temp-data-file-path=ibtmp1:4M:autoextend",
      "--tmpdir=" + folder().string(),  // the test's own may be closed to nobody
      "--default-time-zone=+00:00",
      "--log-warnings=1",
  };
  return all;
}

/// What mariadb-install-db does, without its search for programs.
void mariadb_server::make_system_tables() {
  const auto statements = folder() / "system.sql";
  std::ofstream out(statements);
  out << "CREATE DATABASE test;\nCREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n";
  for (const char* each : {"mysql_system_tables.sql", "mysql_system_tables_data.sql"}) {
    out << std::ifstream(std::filesystem::path(mariadb_share) / each).rdbuf();
  }
  out.close();
  std::vector<std::string> arguments = settings();
  arguments.insert(arguments.end(), {"--bootstrap", "--skip-networking"});
  std::string line = "exec \"$0\" \"$@\" < '" + statements.string() + "'";
  arguments.insert(arguments.begin(), {"-c", std::move(line), mariadb_program});
  prepare("/bin/sh", std::move(arguments), "MariaDB's system tables were not made");
  std::filesystem::remove(statements);
}

std::vector<std::string> mariadb_server::arguments() const {
  std::vector<std::string> all = settings();
  all.insert(all.end(), {"--bind-address=127.0.0.1", "--port=" + std::to_string(port()),
                         "--socket=" + socket().string(),
                         "--pid-file=" + (folder() / "pid").string(), "--max-connections=400"});
  if (options_.tls) {
    all.insert(all.end(), {"--ssl-cert=" + (folder() / "server.crt").string(),
                           "--ssl-key=" + (folder() / "server.key").string(),
                           "--ssl-ca=" + (folder() / "ca.crt").string()});
  }
  for (const std::string& each : options_.settings) all.push_back("--" + each);
  return all;
}

}  // namespace sallyport::kit
