#pragma once

#include "tests/kit/child_process.hpp"
#include "tests/kit/free_port.hpp"
#include "tests/kit/temporary_folder.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

/// What the kit's SQL servers have in common; see postgres_server.hpp and mariadb_server.hpp.
namespace sallyport::kit {

class shifted_clock;

struct sql_tls {
  std::filesystem::path certificate;  // PEM, of the server
  std::filesystem::path key;
  std::filesystem::path authority;  // PEM; who signs the certificates of clients
};

/// What a statement gave: rows of texts. NULL is "" in PostgreSQL and "NULL" in MariaDB.
using sql_rows = std::vector<std::vector<std::string>>;

/// A blocking connection with which tests look at a server from outside. Errors are thrown as
/// kit_error.
/// Thread safety: none.
class sql_probe {
 public:
  sql_probe() = default;
  sql_probe(const sql_probe&) = delete;
  sql_probe& operator=(const sql_probe&) = delete;
  virtual ~sql_probe() = default;

  sql_rows rows(const std::string& sql);
  /// The first column of the first row; "" when there is none.
  std::string value(const std::string& sql);
  /// Sends without waiting; result() waits for what it gives.
  virtual void begin(const std::string& sql) = 0;
  virtual sql_rows result() = 0;
};

/// A server of this machine, with a folder and a port of its own, on 127.0.0.1. It refuses to run as
/// root and then runs as nobody. Started by the constructor; ended, and its folder removed, by the
/// destructor. Port and folder stay the same over kill and start.
/// Thread safety: none, but for port(), address(), folder(), connect(), rows() and value().
class sql_server {
 public:
  sql_server(const sql_server&) = delete;
  sql_server& operator=(const sql_server&) = delete;
  virtual ~sql_server() = default;

  [[nodiscard]] std::uint16_t port() const noexcept { return port_.number(); }
  [[nodiscard]] std::filesystem::path folder() const { return folder_.path(); }
  /// As the user who may do everything, without options.
  [[nodiscard]] virtual std::string address() const = 0;

  /// After stop or kill. Returns when it lets in; throws kit_error with its log when it does not.
  void start();
  /// A clean end: what was committed is on disk, and the server says so to its clients.
  void stop();
  /// SIGKILL of all its processes, at once.
  virtual void kill() { process_->kill(); }
  /// SIGSTOP of all its processes: connections stay open and nobody answers.
  virtual void pause() { process_->pause(); }
  virtual void resume() { process_->resume(); }
  [[nodiscard]] bool running() { return process_ && process_->running(); }

  /// As the user who may do everything.
  [[nodiscard]] virtual std::unique_ptr<sql_probe> connect() const = 0;
  /// One statement on a connection of its own.
  sql_rows rows(const std::string& sql) const { return connect()->rows(sql); }
  std::string value(const std::string& sql) const { return connect()->value(sql); }
  [[nodiscard]] std::string log_tail() const { return process_ ? process_->log_tail() : ""; }

 protected:
  /// Which server it is.
  struct make {
    std::string name;  // for people
    std::string program;
    int clean_end;  // the signal for it
  };

  /// The folder is made; the rest is up to the derived constructor, start() last.
  sql_server(make which, const std::string& folder_name, const std::filesystem::path& parent,
             const shifted_clock* clock);

  /// What the program is started with.
  [[nodiscard]] virtual std::vector<std::string> arguments() const = 0;
  /// Runs a tool in the folder, to its end; throws kit_error with its log when it fails.
  void prepare(std::string tool, std::vector<std::string> arguments, const std::string& trouble);
  /// Copies them as server.crt, server.key and ca.crt into the folder.
  void keep(const sql_tls& files) const;
  [[nodiscard]] child_process* process() const noexcept { return process_.get(); }

 private:
  const make make_;
  const shifted_clock* const clock_;
  const temporary_folder folder_;
  const free_port port_;
  std::unique_ptr<child_process> process_;
};

}  // namespace sallyport::kit
