#pragma once

#include "tests/kit/sql_server.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sallyport::kit {

struct mariadb_options {
  std::vector<std::string> settings = {};  // "name=value", last, so that they win
  std::optional<sql_tls> tls = {};
  std::filesystem::path parent = {};     // in which its folder is made; else in memory
  const shifted_clock* clock = nullptr;  // the server's wall clock; must outlive the server
};

/// As whom and where a probe connects.
struct mariadb_place {
  std::uint16_t port = 0;
  std::string user = "root";
  std::string password = {};
  std::string database = "test";
};

/// A connection of libmariadb. Of a CALL it gives the rows of the first result.
class mariadb_probe final : public sql_probe {
 public:
  explicit mariadb_probe(const mariadb_place& where);
  mariadb_probe(const mariadb_probe&) = delete;
  mariadb_probe& operator=(const mariadb_probe&) = delete;
  ~mariadb_probe() override;

  void begin(const std::string& sql) override;
  sql_rows result() override;
  /// Statements as MariaDB's command reads them: each ends with a semicolon at the end of a line, or,
  /// after DELIMITER, with that on a line of its own.
  void script(const std::string& text);
  /// The server's number of this connection, for KILL.
  [[nodiscard]] std::uint64_t connection() const;

 private:
  struct handle;
  std::unique_ptr<handle> handle_;
};

/// A MariaDB server, also on a unix socket in its folder, with the user root, who needs no password,
/// and the database `test`. Unless a test says otherwise its folder is in memory, where fsync costs nothing.
class mariadb_server final : public sql_server {
 public:
  explicit mariadb_server(mariadb_options options = {});

  [[nodiscard]] std::filesystem::path socket() const { return folder() / "socket"; }
  /// "mariadb://root@127.0.0.1:1234/test"
  [[nodiscard]] std::string address() const override { return address_at(port()); }
  [[nodiscard]] static std::string address_at(std::uint16_t port);
  [[nodiscard]] std::unique_ptr<sql_probe> connect() const override;

 private:
  [[nodiscard]] std::vector<std::string> arguments() const override;
  [[nodiscard]] std::vector<std::string> settings() const;
  void make_system_tables();

  const mariadb_options options_;
};

}  // namespace sallyport::kit
