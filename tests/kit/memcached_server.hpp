#pragma once

#include "tests/kit/child_process.hpp"
#include "tests/kit/free_port.hpp"
#include "tests/kit/temporary_folder.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::kit {

struct memcached_tls {
  std::filesystem::path certificate;  // PEM, of the server
  std::filesystem::path key;
  std::filesystem::path
      authority;  // PEM; who signs the certificates of clients, which are required
};

struct memcached_options {
  bool unix_socket = false;                 // instead of the port; see memcached_server::unix_path
  std::optional<memcached_tls> tls = {};    // on the port; the probe then has a port of its own
  std::string login = {};                   // "user:password": nobody else is let in
  std::vector<std::string> arguments = {};  // further ones, last, so that they win
};

/// A connection that speaks memcached's text, from outside.
/// Thread safety: none.
class memcached_probe {
 public:
  explicit memcached_probe(std::uint16_t port);
  explicit memcached_probe(const std::string& unix_path);
  memcached_probe(const memcached_probe&) = delete;
  memcached_probe& operator=(const memcached_probe&) = delete;
  ~memcached_probe();

  /// Sends this, with a line end, and returns the first line of the answer, without its own.
  std::string ask(std::string_view line);
  /// The next line. Throws kit_error when none comes in time.
  std::string line();
  void set_patience(lease_clock::duration within) { within_ = within; }
  /// Lines until one that is `END`, without it.
  std::vector<std::string> lines_until_end(std::string_view line);

 private:
  int socket_ = -1;
  std::string rest_;
  lease_clock::duration within_ = patience;
};

/// A memcached of this machine, with a folder and a port of its own, on 127.0.0.1; as another user
/// than root. Started by the constructor; killed, and its folder removed, by the destructor.
/// Thread safety: none, but for port(), unix_path() and address().
class memcached_server {
 public:
  /// Returns when it answers; throws kit_error with its log when it does not.
  explicit memcached_server(memcached_options options = {});
  memcached_server(const memcached_server&) = delete;
  memcached_server& operator=(const memcached_server&) = delete;
  ~memcached_server();

  /// After kill: as the constructor, on the same port. Nothing is remembered.
  void start();
  /// SIGKILL.
  void kill();
  void restart() {
    kill();
    start();
  }
  /// SIGSTOP: connections stay open and nobody answers.
  void pause();
  void resume();

  [[nodiscard]] std::uint16_t port() const noexcept { return port_.number(); }
  [[nodiscard]] std::string unix_path() const { return (folder_.path() / "socket").string(); }
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_.path(); }
  /// Without options.
  [[nodiscard]] std::string address() const;
  /// A new connection, which may do everything.
  [[nodiscard]] std::unique_ptr<memcached_probe> probe() const;
  /// The keys of all items that live, as they were at some moment. For tests: an LRU that is in
  /// motion may hide some.
  [[nodiscard]] std::vector<std::string> keys() const;
  /// A number of `stats`.
  [[nodiscard]] std::uint64_t stat(std::string_view name) const;

 private:
  [[nodiscard]] std::vector<std::string> walk() const;

  const memcached_options options_;
  const temporary_folder folder_{"memcached"};
  const free_port port_;
  const free_port probe_port_;  // with TLS
  std::unique_ptr<child_process> process_;
};

}  // namespace sallyport::kit
