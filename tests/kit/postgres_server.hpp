#pragma once

#include "tests/kit/child_process.hpp"
#include "tests/kit/free_port.hpp"
#include "tests/kit/temporary_folder.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sallyport::kit {

class shifted_clock;

struct postgres_tls {
  std::filesystem::path certificate;  // PEM, of the server
  std::filesystem::path key;
  std::filesystem::path authority;  // PEM; who signs the certificates of clients
};

struct postgres_options {
  std::vector<std::string> settings = {};  // "name=value", last, so that they win
  std::vector<std::string> hba = {};       // lines of pg_hba.conf, before "trust for all"
  std::optional<postgres_tls> tls = {};
  std::string encoding = "UTF8";         // of the databases
  bool on_disk = false;                  // else in memory, where fsync costs nothing
  const shifted_clock* clock = nullptr;  // the server's wall clock; must outlive the server
  /// The port of the server of which it is a replica, until it is promoted (SELECT pg_promote()), or
  /// of a proxy before that; `encoding`, `hba` and `tls` are that one's then.
  std::uint16_t replica_of = 0;
};

/// What a statement gave: rows of texts.
using postgres_rows = std::vector<std::vector<std::string>>;

/// A blocking connection of libpq with which tests look at a server from outside. Errors are thrown
/// as kit_error.
/// Thread safety: none.
class postgres_probe {
 public:
  /// A connection string of libpq.
  explicit postgres_probe(const std::string& where);
  postgres_probe(const postgres_probe&) = delete;
  postgres_probe& operator=(const postgres_probe&) = delete;
  ~postgres_probe();

  postgres_rows rows(const std::string& sql);
  /// The first column of the first row; "" when there is none.
  std::string value(const std::string& sql);
  /// Sends without waiting; result() waits for what it gives.
  void begin(const std::string& sql);
  postgres_rows result();
  /// The server's process that serves this connection.
  [[nodiscard]] int process() const;

 private:
  struct handle;
  std::unique_ptr<handle> handle_;
};

/// A PostgreSQL server of this machine, with a folder and a port of its own, on 127.0.0.1 and on a
/// unix socket in its folder. It refuses to run as root and then runs as nobody. Started by the constructor; ended, and its folder removed, by
/// the destructor. Port and folder stay the same over kill and start.
/// Thread safety: none, but for port(), address() and folder().
class postgres_server {
 public:
  /// Returns when the server lets in; throws kit_error with its log when it does not.
  explicit postgres_server(postgres_options options = {});
  postgres_server(const postgres_server&) = delete;
  postgres_server& operator=(const postgres_server&) = delete;
  ~postgres_server();

  [[nodiscard]] std::uint16_t port() const noexcept { return port_.number(); }
  [[nodiscard]] std::filesystem::path folder() const { return folder_.path(); }
  /// "postgres://postgres@127.0.0.1:1234/postgres", without options.
  [[nodiscard]] std::string address() const { return address_at(port()); }
  [[nodiscard]] static std::string address_at(std::uint16_t port);

  /// After stop or kill. Returns when it lets in.
  void start();
  /// A clean end: what was committed is on disk, and the server says so to its clients.
  void stop();
  /// SIGKILL of all its processes, at once.
  void kill();
  /// SIGSTOP of all its processes: connections stay open and nobody answers.
  void pause();
  void resume();
  [[nodiscard]] bool running();

  /// One statement on a connection of its own.
  postgres_rows rows(const std::string& sql) const;
  std::string value(const std::string& sql) const;
  [[nodiscard]] std::string log_tail() const { return process_ ? process_->log_tail() : ""; }

 private:
  [[nodiscard]] std::vector<pid_t> processes() const;
  void make_data();
  void copy_data();
  void wait_until_ready();

  const postgres_options options_;
  const temporary_folder folder_;
  const free_port port_;
  std::unique_ptr<child_process> process_;
};

/// A pgbouncer before a server, with a port of its own, on 127.0.0.1.
class pgbouncer {
 public:
  /// `mode`: transaction, session or statement. `connections`: how many to the server, at most.
  pgbouncer(const postgres_server& server, const std::string& mode, int connections = 4);

  [[nodiscard]] std::uint16_t port() const noexcept { return port_.number(); }
  [[nodiscard]] std::string address() const { return postgres_server::address_at(port()); }

 private:
  const temporary_folder folder_;
  const free_port port_;
  std::unique_ptr<child_process> process_;
};

}  // namespace sallyport::kit
