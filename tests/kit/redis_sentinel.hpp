#pragma once

#include "tests/kit/redis_server.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sallyport::kit {

struct redis_sentinel_options {
  std::string master_name = "mymaster";
  std::size_t replicas = 2;
  std::size_t sentinels = 3;  // the majority is the quorum
  std::chrono::milliseconds down_after{500};
  std::chrono::milliseconds failover_timeout{2'000};
  redis_options server = {};           // of the master and the replicas, but for replica_of
  std::string sentinel_password = {};  // requirepass of the sentinels
};

/// A master, its replicas and the sentinels that watch them, all on 127.0.0.1. The sentinels look
/// around much more often than by default, so that a failover takes about two seconds.
/// Thread safety: none.
class redis_sentinel_group {
 public:
  /// Returns when all replicas are online and all sentinels know all servers and each other.
  explicit redis_sentinel_group(redis_sentinel_options options = {});

  [[nodiscard]] const std::string& master_name() const noexcept { return options_.master_name; }
  [[nodiscard]] std::vector<std::uint16_t> sentinel_ports() const;
  /// Master and replicas; the first was the master at the beginning.
  [[nodiscard]] redis_server& server(std::size_t index) { return *servers_.at(index); }
  [[nodiscard]] redis_server& sentinel(std::size_t index) { return *sentinels_.at(index); }
  [[nodiscard]] std::size_t servers() const noexcept { return servers_.size(); }
  [[nodiscard]] std::size_t sentinels() const noexcept { return sentinels_.size(); }

  /// The master by the word of the majority of the sentinels; 0: they do not agree. At least a
  /// majority has to run.
  [[nodiscard]] std::uint16_t current_master_port();
  /// The server that has this port.
  [[nodiscard]] redis_server& server_with_port(std::uint16_t port);
  [[nodiscard]] redis_server& master() { return server_with_port(current_master_port()); }

  enum class how { kill, pause };
  /// Takes the master away and waits until the group has settled on another one. Returns the old
  /// one: killed, it may be started again; paused, it still thinks that it is master when it is
  /// resumed.
  redis_server& fail_over(how taken_away);
  /// Only takes the master away, for tests that watch what follows.
  redis_server& begin_fail_over(how taken_away);
  /// Waits until all sentinels that run agree on a master that is awake and has the role, none of
  /// them is at work on a failover, and all other servers that are awake follow it. Before that, a
  /// second sentinel may still make another master than the first.
  void wait_until_settled();
  /// Waits until that server follows the current master, as an old one does after its return.
  void wait_until_replica(redis_server& server);
  /// The last lines of all logs, for messages.
  [[nodiscard]] std::string log_tails() const;

 private:
  void start_sentinel();
  void hurry(const redis_server& sentinel) const;
  [[nodiscard]] bool all_know_each_other();
  [[nodiscard]] bool settled();
  [[noreturn]] void fail(const std::string& what) const;

  const redis_sentinel_options options_;
  std::vector<std::unique_ptr<redis_server>> servers_;
  std::vector<std::unique_ptr<redis_server>> sentinels_;
};

}  // namespace sallyport::kit
