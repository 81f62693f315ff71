#pragma once

#include "tests/kit/child_process.hpp"
#include "tests/kit/fault_proxy.hpp"
#include "tests/kit/free_port.hpp"
#include "tests/kit/temporary_folder.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sallyport::kit {

struct zookeeper_options {
  std::size_t servers = 1;
  std::chrono::milliseconds tick{50};
  /// In ticks: a server that does not hear from the others for so long leaves them. Long, because a
  /// machine that is busy elsewhere must not look like a fault; short where a test cuts servers off.
  int sync_limit = 200;
  std::chrono::milliseconds sweep{200};  // of containers that are empty
  std::vector<std::string> config = {};  // further lines of zoo.cfg
  bool detours = false;                  // servers reach each other through proxies: see between()
};

/// A ZooKeeper ensemble of this machine, each server with a folder and ports of its own, on
/// 127.0.0.1. Started by the constructor; killed, and its folders removed, by the destructor. Ports
/// and folders stay the same over kill and start. A server is a JVM: up in about a second.
/// Thread safety: none, but for address() and port().
class zookeeper_ensemble {
 public:
  /// Returns when all servers serve; throws kit_error with a log when they do not.
  explicit zookeeper_ensemble(zookeeper_options options = {});
  zookeeper_ensemble(const zookeeper_ensemble&) = delete;
  zookeeper_ensemble& operator=(const zookeeper_ensemble&) = delete;
  ~zookeeper_ensemble();

  [[nodiscard]] std::size_t size() const noexcept { return servers_.size(); }
  [[nodiscard]] std::uint16_t port(std::size_t server) const;
  /// Each server has an address of its own, because the client library knows them by it: 127.0.0.1
  /// and up.
  [[nodiscard]] std::string host(std::size_t server) const;
  /// "zookeeper://127.0.0.1:1234,...", without root and options; of one server, or of all.
  [[nodiscard]] std::string address() const;
  [[nodiscard]] std::string address(std::size_t server) const;
  /// The option that says the tick of these servers.
  [[nodiscard]] std::string tick_option() const;

  /// SIGKILL.
  void kill(std::size_t server);
  /// After kill: the same server again. Does not wait until it serves.
  void start(std::size_t server);
  /// SIGSTOP: connections stay open and nobody answers.
  void pause(std::size_t server);
  void resume(std::size_t server);
  /// Waits until every server that is awake serves.
  void wait_until_serving();
  /// Which server leads. Throws when none does.
  [[nodiscard]] std::size_t leader();
  /// The way on which server `from` follows server `to`, where there are detours.
  [[nodiscard]] fault_proxy& between(std::size_t from, std::size_t to);
  /// The answer to a word of four letters; empty when the server does not answer.
  [[nodiscard]] std::string say(std::size_t server, const std::string& word) const;
  /// What the servers have said of themselves lately, for a test that failed.
  [[nodiscard]] std::string log_tails() const;
  /// Paths of all ephemeral nodes below `root`, as the first server that is awake has them.
  [[nodiscard]] std::vector<std::string> ephemerals(const std::string& root) const;

 private:
  struct server;

  void write_configuration(std::size_t number);

  const zookeeper_options options_;
  std::vector<std::unique_ptr<server>> servers_;
};

}  // namespace sallyport::kit
