#include "tests/kit/postgres_server.hpp"

#include "tests/kit/unprivileged.hpp"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <libpq-fe.h>
#include <sys/shm.h>
#include <unistd.h>
#include <utility>

namespace sallyport::kit {

namespace {

constexpr const char* postgres_folder = SALLYPORT_POSTGRES_FOLDER;
constexpr const char* pgbouncer_program = SALLYPORT_PGBOUNCER;

/// What a killed server could not remove: a small piece of shared memory.
void remove_shared_memory(const std::filesystem::path& data) {
  std::ifstream file(data / "postmaster.pid");
  std::string line;
  for (int i = 0; i < 6; ++i) std::getline(file, line);
  long key = 0;
  int id = -1;
  if (file >> key >> id) ::shmctl(id, IPC_RMID, nullptr);
}

/// Nobody may have taken note of its end.
bool has_ended(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return true;
  const auto at = line.rfind(") ");
  return at != std::string::npos && line.compare(at + 2, 1, "Z") == 0;
}

std::string program(const char* name) { return std::string(postgres_folder) + "/" + name; }

}  // namespace

struct postgres_probe::handle {
  PGconn* connection = nullptr;
};

postgres_probe::postgres_probe(const std::string& where) : handle_(std::make_unique<handle>()) {
  handle_->connection = PQconnectdb(where.c_str());
  if (PQstatus(handle_->connection) != CONNECTION_OK) {
    const std::string why = PQerrorMessage(handle_->connection);
    PQfinish(handle_->connection);
    throw kit_error("no connection: " + why);
  }
  PQsetNoticeProcessor(
      handle_->connection, [](void*, const char*) {}, nullptr);
}

postgres_probe::~postgres_probe() { PQfinish(handle_->connection); }

void postgres_probe::begin(const std::string& sql) {
  if (PQsendQuery(handle_->connection, sql.c_str()) == 0) {
    throw kit_error(PQerrorMessage(handle_->connection));
  }
}

sql_rows postgres_probe::result() {
  sql_rows all;
  std::string error;
  while (PGresult* const one = PQgetResult(handle_->connection)) {
    const auto status = PQresultStatus(one);
    if (status == PGRES_TUPLES_OK) {
      all.clear();
      for (int row = 0; row < PQntuples(one); ++row) {
        auto& values = all.emplace_back();
        for (int column = 0; column < PQnfields(one); ++column) {
          values.emplace_back(PQgetvalue(one, row, column));
        }
      }
    } else if (status != PGRES_COMMAND_OK && error.empty()) {
      error = PQresultErrorMessage(one);
    }
    PQclear(one);
  }
  if (!error.empty()) throw kit_error(error);
  return all;
}

int postgres_probe::process() const { return PQbackendPID(handle_->connection); }

std::string postgres_server::address_at(std::uint16_t port) {
  return "postgres://postgres@127.0.0.1:" + std::to_string(port) + "/postgres";
}

std::unique_ptr<sql_probe> postgres_server::connect() const {
  return std::make_unique<postgres_probe>(address());
}

postgres_server::postgres_server(postgres_options options)
    : sql_server({.name = "PostgreSQL",
                  .program = program("postgres"),
                  .clean_end = SIGINT},  // "fast": clients are sent away
                 "pg",
                 !options.parent.empty() ? options.parent
                 : options.on_disk       ? std::filesystem::temp_directory_path()
                                         : in_memory(),
                 options.clock),
      options_(std::move(options)) {
  if (options_.replica_of != 0) {
    copy_data();
  } else {
    make_data();
  }
  start();
}

void postgres_server::copy_data() {
  prepare(program("pg_basebackup"),
          {"--pgdata=" + (folder() / "data").string(), "--host=127.0.0.1",
           "--port=" + std::to_string(options_.replica_of), "--username=postgres",
           "--checkpoint=fast", "--no-sync", "--write-recovery-conf"},
          "pg_basebackup failed");
}

void postgres_server::make_data() {
  const auto data = folder() / "data";
  prepare(program("initdb"),
          {"--pgdata=" + data.string(), "--auth=trust", "--username=postgres", "--no-sync",
           "--no-instructions", "--encoding=" + options_.encoding, "--locale=C", "--wal-segsize=1"},
          "initdb failed");
  std::ofstream hba(data / "pg_hba.conf", std::ios::trunc);
  for (const std::string& each : options_.hba) hba << each << '\n';
  hba << "local all all trust\nhost all all 127.0.0.1/32 trust\n"
         "local replication all trust\nhost replication all 127.0.0.1/32 trust\n";
  hba.close();
  if (options_.tls) keep(*options_.tls);
}

postgres_server::~postgres_server() {
  if (process() != nullptr && process()->running()) {
    for (const pid_t each : processes()) ::kill(each, SIGCONT);
    // At once, but with time to remove its shared memory.
    process()->signal(SIGQUIT);
    if (!process()->wait_for_end()) process()->kill();
  }
  remove_shared_memory(folder() / "data");
}

std::vector<pid_t> postgres_server::processes() const {
  std::vector<pid_t> all;
  if (process() == nullptr) return all;
  all.push_back(process()->pid());
  const std::string path = "/proc/" + std::to_string(process()->pid()) + "/task/" +
                           std::to_string(process()->pid()) + "/children";
  std::ifstream children(path);
  for (pid_t each = 0; children >> each;) all.push_back(each);
  return all;
}

std::vector<std::string> postgres_server::arguments() const {
  std::vector<std::string> all{
      "-D", (folder() / "data").string(), "-p", std::to_string(port()), "-k", folder().string()};
  std::vector<std::string> settings{
      "dynamic_shared_memory_type=mmap",  // in its folder: a killed server leaves nothing elsewhere
      "listen_addresses=127.0.0.1",      "shared_buffers=16MB", "max_connections=200",
      "log_min_messages=warning",        "timezone=UTC",        "autovacuum_naptime=5s"};
  if (options_.tls) {
    settings.insert(settings.end(),
                    {"ssl=on", "ssl_cert_file=" + (folder() / "server.crt").string(),
                     "ssl_key_file=" + (folder() / "server.key").string(),
                     "ssl_ca_file=" + (folder() / "ca.crt").string()});
  }
  settings.insert(settings.end(), options_.settings.begin(), options_.settings.end());
  for (const std::string& each : settings) {
    all.emplace_back("-c");
    all.push_back(each);
  }
  return all;
}

void postgres_server::kill() {
  // One that stands still starts no further processes.
  process()->pause();
  const std::vector<pid_t> all = processes();
  for (const pid_t each : all) ::kill(each, SIGKILL);
  process()->kill();
  // The next server refuses to start while any of them is left.
  const bool gone = eventually([&] { return std::ranges::all_of(all, &has_ended); });
  if (!gone) throw kit_error("PostgreSQL's processes do not end");
}

void postgres_server::pause() {
  for (const pid_t each : processes()) ::kill(each, SIGSTOP);
}

void postgres_server::resume() {
  for (const pid_t each : processes()) ::kill(each, SIGCONT);
}

pgbouncer::pgbouncer(const postgres_server& server, const std::string& mode, int connections)
    : folder_("pgbouncer", in_memory()) {
  give_away(folder_.path());
  const auto file = folder_.path() / "pgbouncer.ini";
  std::ofstream out(file);
  out << "[databases]\n"
      // auth_type any has to be told as whom it connects.
      << "* = host=127.0.0.1 port=" << server.port() << " user=postgres\n[pgbouncer]\n"
      << "listen_addr = 127.0.0.1\nlisten_port = " << port() << "\nunix_socket_dir =\n"
      << "auth_type = any\npool_mode = " << mode << "\ndefault_pool_size = " << connections << "\n"
      << "max_client_conn = 200\nserver_check_delay = 0\n";
  out.close();
  process_ = std::make_unique<child_process>(child_options{.program = pgbouncer_program,
                                                           .called_as = {},
                                                           .arguments = {file.string()},
                                                           .environment = {},
                                                           .folder = folder_.path(),
                                                           .log = folder_.path() / "log",
                                                           .run_as = not_root()});
  const bool ready = eventually([&] {
    if (!process_->running()) return true;
    return postgres_probe{address()}.value("SELECT 1") == "1";
  });
  if (!ready || !process_->running()) {
    throw kit_error("pgbouncer does not answer\n" + process_->log_tail());
  }
}

}  // namespace sallyport::kit
