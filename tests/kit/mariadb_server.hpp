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

struct mariadb_tls {
  std::filesystem::path certificate;  // PEM, of the server
  std::filesystem::path key;
  std::filesystem::path authority;  // PEM; who signs the certificates of clients
};

struct mariadb_options {
  std::vector<std::string> settings = {};  // "name=value", last, so that they win
  std::optional<mariadb_tls> tls = {};
  const shifted_clock* clock = nullptr;  // the server's wall clock; must outlive the server
};

/// What a statement gave: rows of texts; NULL is "NULL".
using mariadb_rows = std::vector<std::vector<std::string>>;

/// As whom and where a probe connects.
struct mariadb_place {
  std::uint16_t port = 0;
  std::string user = "root";
  std::string password = {};
  std::string database = "test";
};

/// A blocking connection of libmariadb with which tests look at a server from outside. Errors are
/// thrown as kit_error.
/// Thread safety: none.
class mariadb_probe {
 public:
  explicit mariadb_probe(const mariadb_place& where);
  mariadb_probe(const mariadb_probe&) = delete;
  mariadb_probe& operator=(const mariadb_probe&) = delete;
  ~mariadb_probe();

  /// One statement; of a CALL, the rows of its first result.
  mariadb_rows rows(const std::string& sql);
  /// The first column of the first row; "" when there is none.
  std::string value(const std::string& sql);
  /// Statements as MariaDB's command reads them: each ends with a semicolon at the end of a line, or,
  /// after DELIMITER, with that on a line of its own.
  void script(const std::string& text);
  /// Sends without waiting; result() waits for what it gives.
  void begin(const std::string& sql);
  mariadb_rows result();
  /// The server's number of this connection, for KILL.
  [[nodiscard]] std::uint64_t connection() const;

 private:
  struct handle;
  std::unique_ptr<handle> handle_;
};

/// A MariaDB server of this machine, with a folder and a port of its own, on 127.0.0.1 and on a unix
/// socket in its folder, with the user root, who needs no password, and the database `test`. It
/// refuses to run as root and then runs as nobody. Its folder is in memory, where fsync costs
/// nothing. Started by the constructor; ended, and its folder removed, by the destructor. Port and
/// folder stay the same over kill and start.
/// Thread safety: none, but for port(), socket(), address() and folder().
class mariadb_server {
 public:
  /// Returns when the server lets in; throws kit_error with its log when it does not.
  explicit mariadb_server(mariadb_options options = {});
  mariadb_server(const mariadb_server&) = delete;
  mariadb_server& operator=(const mariadb_server&) = delete;
  ~mariadb_server();

  [[nodiscard]] std::uint16_t port() const noexcept { return port_.number(); }
  [[nodiscard]] std::filesystem::path folder() const { return folder_.path(); }
  [[nodiscard]] std::filesystem::path socket() const { return folder_.path() / "socket"; }
  /// "mariadb://root@127.0.0.1:1234/test", without options.
  [[nodiscard]] std::string address() const { return address_at(port()); }
  [[nodiscard]] static std::string address_at(std::uint16_t port);

  /// After stop or kill. Returns when it lets in.
  void start();
  /// A clean end.
  void stop();
  /// SIGKILL.
  void kill();
  /// SIGSTOP: connections stay open and nobody answers.
  void pause();
  void resume();
  [[nodiscard]] bool running();

  /// One statement on a connection of its own.
  mariadb_rows rows(const std::string& sql) const;
  std::string value(const std::string& sql) const;
  [[nodiscard]] std::string log_tail() const { return process_ ? process_->log_tail() : ""; }

 private:
  [[nodiscard]] std::vector<std::string> settings() const;
  void make_system_tables();
  void wait_until_ready();

  const mariadb_options options_;
  const temporary_folder folder_;
  const free_port port_;
  std::unique_ptr<child_process> process_;
};

}  // namespace sallyport::kit
