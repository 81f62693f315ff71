#pragma once

#include "tests/kit/child_process.hpp"
#include "tests/kit/free_port.hpp"
#include "tests/kit/redis_probe.hpp"
#include "tests/kit/temporary_folder.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sallyport::kit {

class shifted_clock;

/// What a server's disk remembers.
enum class redis_persistence { none, append_every_second, append_always };

/// Whom a TLS port lets in.
enum class redis_client_certificates { not_asked, optional, required };

struct redis_tls {
  std::filesystem::path certificate;  // PEM, of the server
  std::filesystem::path key;
  std::filesystem::path authority;  // PEM; who signs the certificates of clients
  redis_client_certificates clients = redis_client_certificates::not_asked;
};

struct redis_options {
  redis_persistence persistence = redis_persistence::none;
  bool unix_socket = false;              // see redis_server::unix_path
  std::optional<redis_tls> tls = {};     // beside the plain port; see redis_server::tls_port
  std::string password = {};             // requirepass
  std::vector<std::string> users = {};   // lines of an ACL file: "user alice on >secret ~* +@all"
  std::uint16_t replica_of = 0;          // the port of a master on 127.0.0.1, 0: none
  std::string master_password = {};      // masterauth
  bool cluster = false;                  // see redis_cluster.hpp
  bool sentinel = false;                 // see redis_sentinel.hpp
  bool debug_command = true;             // DEBUG, for connections from 127.0.0.1
  std::vector<std::string> config = {};  // further lines of redis.conf, last, so that they win
  const shifted_clock* clock = nullptr;  // the server's wall clock; must outlive the server
};

/// A redis-server (or redis-sentinel) of this machine's package redis-tools, with a folder and ports
/// of its own, on 127.0.0.1. Started by the constructor; killed, and its folder removed, by the
/// destructor. The port and the folder stay the same over stop, kill and start.
/// Thread safety: none, but for port(), tls_port(), unix_path() and address().
class redis_server {
 public:
  /// Returns when the server answers PING; throws kit_error with its log when it does not.
  explicit redis_server(redis_options options = {});
  redis_server(const redis_server&) = delete;
  redis_server& operator=(const redis_server&) = delete;
  ~redis_server();

  /// After stop or kill: as the constructor. The configuration is the file that was written at
  /// first, with what CONFIG REWRITE made of it.
  void start();
  /// SHUTDOWN, and waits for the end. With `saving` an RDB file is written.
  void stop(bool saving = false);
  /// SIGKILL: what the disk does not have is gone.
  void kill();
  /// Stops (SHUTDOWN NOSAVE) when it runs, and starts again.
  void restart();
  /// SIGSTOP: connections stay open and nobody answers. The kernel still accepts connections.
  void pause();
  void resume();

  [[nodiscard]] std::uint16_t port() const noexcept { return port_.number(); }
  [[nodiscard]] std::uint16_t tls_port() const noexcept { return tls_port_->number(); }
  /// The bus of a cluster's node.
  [[nodiscard]] std::uint16_t bus_port() const noexcept { return bus_port_->number(); }
  [[nodiscard]] const std::string& unix_path() const noexcept { return unix_path_; }
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_.path(); }
  [[nodiscard]] bool running() { return process_ && process_->running(); }
  /// Runs and does not stand still.
  [[nodiscard]] bool awake() { return running() && !process_->paused(); }
  [[nodiscard]] pid_t pid() const noexcept { return process_ ? process_->pid() : -1; }
  [[nodiscard]] std::string log_tail() const;

  /// For a redis_probe that may do everything, whatever the options say about users.
  [[nodiscard]] const redis_address& address() const noexcept { return address_; }
  /// A new connection from outside.
  [[nodiscard]] redis_probe probe() const { return redis_probe{address_}; }
  /// One command on a connection of its own; an error answer is thrown.
  redis_reply command(const redis_probe::words& command) const { return probe().expect(command); }

 private:
  void write_configuration() const;
  [[nodiscard]] std::vector<std::string> users_lines() const;
  void wait_until_ready();

  const redis_options options_;
  const temporary_folder folder_{"redis"};
  const free_port port_;
  const std::optional<free_port> tls_port_;
  const std::optional<free_port> bus_port_;
  const std::string unix_path_;
  const redis_address address_;
  std::unique_ptr<child_process> process_;
};

}  // namespace sallyport::kit
