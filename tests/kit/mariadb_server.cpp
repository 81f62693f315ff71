#include "tests/kit/mariadb_server.hpp"

#include "tests/kit/shifted_clock.hpp"
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

mariadb_rows mariadb_probe::result() {
  mariadb_rows all;
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

mariadb_rows mariadb_probe::rows(const std::string& sql) {
  begin(sql);
  return result();
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

std::string mariadb_probe::value(const std::string& sql) {
  const mariadb_rows all = rows(sql);
  return all.empty() || all.front().empty() ? "" : all.front().front();
}

std::uint64_t mariadb_probe::connection() const { return mysql_thread_id(handle_->connection); }

std::string mariadb_server::address_at(std::uint16_t port) {
  return "mariadb://root@127.0.0.1:" + std::to_string(port) + "/test";
}

mariadb_server::mariadb_server(mariadb_options options)
    : options_(std::move(options)), folder_("maria", in_memory()) {
  give_away(folder_.path());
  const auto data = folder_.path() / "data";
  std::filesystem::create_directory(data);
  give_away(data);
  if (options_.tls) {
    for (const auto& [from, to] : {std::pair{options_.tls->certificate, "server.crt"},
                                   {options_.tls->key, "server.key"},
                                   {options_.tls->authority, "ca.crt"}}) {
      std::filesystem::copy_file(from, folder_.path() / to);
      give_away(folder_.path() / to);
    }
  }
  make_system_tables();
  start();
  mariadb_probe{{.port = port(), .database = ""}}.rows("CREATE DATABASE test");
}

mariadb_server::~mariadb_server() {
  if (process_ && process_->running()) process_->kill();  // nobody needs the folder any more
}

std::vector<std::string> mariadb_server::settings() const {
  const std::string share = mariadb_share;
  std::vector<std::string> all{
      "--no-defaults",
      "--datadir=" + (folder_.path() / "data").string(),
      "--lc-messages-dir=" + share,
      "--character-sets-dir=" + share + "/charsets",
      // Enough of a log that nobody ever has to wait for a checkpoint, and no io_uring, which not every
      // machine has.
      "--innodb-log-file-size=32M",
      "--innodb-buffer-pool-size=32M",
      "--innodb-use-native-aio=0",
      "--innodb-temp-data-file-path=ibtmp1:4M:autoextend",
      "--tmpdir=" + folder_.path().string(),  // the test's own may be closed to nobody
      "--default-time-zone=+00:00",
      "--log-warnings=1",
  };
  return all;
}

/// What mariadb-install-db does, without its search for programs.
void mariadb_server::make_system_tables() {
  const auto statements = folder_.path() / "system.sql";
  std::ofstream out(statements);
  out << "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n";
  for (const char* each : {"mysql_system_tables.sql", "mysql_system_tables_data.sql"}) {
    out << std::ifstream(std::filesystem::path(mariadb_share) / each).rdbuf();
  }
  out.close();
  std::vector<std::string> arguments = settings();
  arguments.insert(arguments.end(), {"--bootstrap", "--skip-networking"});
  std::string line = "exec \"$0\" \"$@\" < '" + statements.string() + "'";
  arguments.insert(arguments.begin(), {"-c", std::move(line), mariadb_program});
  child_process made{{.program = "/bin/sh",
                      .called_as = {},
                      .arguments = std::move(arguments),
                      .environment = {"LC_ALL=C", "TZ=UTC"},
                      .folder = folder_.path(),
                      .log = folder_.path() / "bootstrap.log",
                      .run_as = not_root()}};
  if (made.wait_for_end() != 0) {
    throw kit_error("MariaDB's system tables were not made\n" + made.log_tail());
  }
  std::filesystem::remove(statements);
}

void mariadb_server::start() {
  if (running()) throw kit_error("the server runs already");
  std::vector<std::string> arguments = settings();
  arguments.insert(arguments.end(),
                   {"--bind-address=127.0.0.1", "--port=" + std::to_string(port()),
                    "--socket=" + socket().string(),
                    "--pid-file=" + (folder_.path() / "pid").string(), "--max-connections=400"});
  if (options_.tls) {
    arguments.insert(arguments.end(), {"--ssl-cert=" + (folder() / "server.crt").string(),
                                       "--ssl-key=" + (folder() / "server.key").string(),
                                       "--ssl-ca=" + (folder() / "ca.crt").string()});
  }
  for (const std::string& each : options_.settings) arguments.push_back("--" + each);
  std::vector<std::string> environment{"LC_ALL=C", "TZ=UTC"};
  if (options_.clock != nullptr) {
    for (const std::string& each : options_.clock->environment()) environment.push_back(each);
  }
  process_ = std::make_unique<child_process>(child_options{.program = mariadb_program,
                                                           .called_as = {},
                                                           .arguments = std::move(arguments),
                                                           .environment = std::move(environment),
                                                           .folder = folder_.path(),
                                                           .log = folder_.path() / "log",
                                                           .run_as = not_root()});
  wait_until_ready();
}

void mariadb_server::wait_until_ready() {
  const bool ready = eventually([&] {
    if (!process_->running()) return true;  // no use in waiting on
    return mariadb_probe{{.port = port(), .database = ""}}.value("SELECT 1") == "1";
  });
  if (!ready || !process_->running()) {
    throw kit_error("MariaDB does not answer\n" + process_->log_tail());
  }
}

void mariadb_server::stop() {
  process_->signal(SIGTERM);
  if (!process_->wait_for_end()) throw kit_error("MariaDB does not stop\n" + log_tail());
}

void mariadb_server::kill() { process_->kill(); }

void mariadb_server::pause() { process_->pause(); }

void mariadb_server::resume() { process_->resume(); }

bool mariadb_server::running() { return process_ && process_->running(); }

mariadb_rows mariadb_server::rows(const std::string& sql) const {
  return mariadb_probe{{.port = port()}}.rows(sql);
}

std::string mariadb_server::value(const std::string& sql) const {
  return mariadb_probe{{.port = port()}}.value(sql);
}

}  // namespace sallyport::kit
