#pragma once

#include "tests/kit/certificates.hpp"
#include "tests/kit/child_process.hpp"
#include "tests/kit/fault_proxy.hpp"
#include "tests/kit/free_port.hpp"
#include "tests/kit/temporary_folder.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sallyport::kit {

struct etcd_tls {
  std::filesystem::path certificate;  // PEM, of the server
  std::filesystem::path key;
  std::filesystem::path authority;                // PEM; who signs the certificates of clients
  std::optional<certificate_files> clients = {};  // they need one; this is etcdctl's
};

struct etcd_options {
  std::size_t members = 1;
  bool on_disk = false;                      // else in memory, where a write costs no fsync
  std::optional<etcd_tls> tls = {};          // of clients; members talk in the clear
  std::chrono::milliseconds election{1000};  // a fifth of it is the heartbeat
  bool detours = false;                      // members reach each other through proxies
  std::vector<std::string> flags = {};       // further ones of etcd, last, so that they win
};

/// An etcd cluster of this machine, each member with a folder and ports of its own, on 127.0.0.1.
/// Started by the constructor; killed, and its folders removed, by the destructor. Ports and folders
/// stay the same over kill and start.
/// Thread safety: none, but for address() and port().
class etcd_cluster {
 public:
  /// Returns when all members are healthy; throws kit_error with a log when they are not.
  explicit etcd_cluster(etcd_options options = {});
  etcd_cluster(const etcd_cluster&) = delete;
  etcd_cluster& operator=(const etcd_cluster&) = delete;
  ~etcd_cluster();

  [[nodiscard]] std::size_t size() const noexcept { return members_.size(); }
  [[nodiscard]] std::uint16_t port(std::size_t which) const;
  /// "etcd://127.0.0.1:1234,...", without options; of all members, or of one.
  [[nodiscard]] std::string address() const;
  [[nodiscard]] std::string address(std::size_t which) const;

  /// SIGKILL.
  void kill(std::size_t which);
  /// After kill: the same member again. Does not wait until it is healthy.
  void start(std::size_t which);
  /// SIGSTOP: connections stay open and nobody answers.
  void pause(std::size_t which);
  void resume(std::size_t which);
  /// Where there are detours: nothing passes between this member and the others, in neither
  /// direction; its clients still reach it. What was said meanwhile arrives when it has rejoined.
  void cut_off(std::size_t which);
  void rejoin(std::size_t which);
  /// The way on which member `from` connects to member `to`, where there are detours.
  [[nodiscard]] fault_proxy& between(std::size_t from, std::size_t to);
  /// Waits until every running member has a leader and answers.
  void wait_until_healthy();
  /// Which member leads. Throws when none does.
  [[nodiscard]] std::size_t leader();

  /// Runs etcdctl against the first member that is awake (or `only`), and returns what it prints;
  /// throws kit_error when it fails.
  std::string ctl(const std::vector<std::string>& arguments, std::optional<std::size_t> only = {});
  /// etcdctl's arguments for every call: a user, say.
  void always_say(std::vector<std::string> arguments) { always_ = std::move(arguments); }

  /// All keys, one a line, but for the names of stores ("PREFIX\x01store"), which stay.
  [[nodiscard]] std::vector<std::string> keys(const std::string& prefix = {});
  /// How many leases there are.
  [[nodiscard]] std::size_t leases();

 private:
  struct member;

  [[nodiscard]] std::string client_url(std::size_t which) const;
  [[nodiscard]] std::string peer_url(std::size_t which) const;
  void make_detours();

  const etcd_options options_;
  std::vector<std::unique_ptr<member>> members_;
  std::vector<std::string> always_;
  int calls_ = 0;
};

}  // namespace sallyport::kit
