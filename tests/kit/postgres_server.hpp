#pragma once

#include "tests/kit/sql_server.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace sallyport::kit {

struct postgres_options {
  std::vector<std::string> settings = {};  // "name=value", last, so that they win
  std::vector<std::string> hba = {};       // lines of pg_hba.conf, before "trust for all"
  std::optional<sql_tls> tls = {};
  std::string encoding = "UTF8";         // of the databases
  bool on_disk = false;                  // else in memory, where fsync costs nothing
  std::filesystem::path parent = {};     // in which its folder is made, if that matters
  const shifted_clock* clock = nullptr;  // the server's wall clock; must outlive the server
  /// The port of the server of which it is a replica, until it is promoted (SELECT pg_promote()), or
  /// of a proxy before that; `encoding`, `hba` and `tls` are that one's then.
  std::uint16_t replica_of = 0;
};

/// A connection of libpq. Of several statements at once it gives the rows of the last that has any.
class postgres_probe final : public sql_probe {
 public:
  /// A connection string of libpq.
  explicit postgres_probe(const std::string& where);
  postgres_probe(const postgres_probe&) = delete;
  postgres_probe& operator=(const postgres_probe&) = delete;
  ~postgres_probe() override;

  void begin(const std::string& sql) override;
  sql_rows result() override;
  /// The server's process that serves this connection.
  [[nodiscard]] int process() const;

 private:
  struct handle;
  std::unique_ptr<handle> handle_;
};

/// A PostgreSQL server, also on a unix socket in its folder.
class postgres_server final : public sql_server {
 public:
  explicit postgres_server(postgres_options options = {});
  postgres_server(const postgres_server&) = delete;
  postgres_server& operator=(const postgres_server&) = delete;
  ~postgres_server() override;

  /// "postgres://postgres@127.0.0.1:1234/postgres"
  [[nodiscard]] std::string address() const override { return address_at(port()); }
  [[nodiscard]] static std::string address_at(std::uint16_t port);
  [[nodiscard]] std::unique_ptr<sql_probe> connect() const override;

  void kill() override;
  void pause() override;
  void resume() override;

 private:
  [[nodiscard]] std::vector<std::string> arguments() const override;
  [[nodiscard]] std::vector<pid_t> processes() const;
  void make_data();
  void copy_data();

  const postgres_options options_;
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
