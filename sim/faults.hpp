#pragma once

#include "sim/cluster.hpp"
#include "sim/context.hpp"
#include "sim/etcd_store.hpp"
#include "sim/local_node.hpp"
#include "sim/process.hpp"
#include "sim/redis_node.hpp"
#include "sim/redlock_store.hpp"
#include "sim/store.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace sallyport::sim {

/// Makes the faults happen that are not tied to a message, each at the rate that the seed has
/// drawn.
/// Thread safety: none. Must outlive the loop's events.
class fault_maker {
 public:
  /// What may be struck besides processes. One of `network`, `quorum`, `members` and `local` is there:
  /// the store that `truth` is, or a part of it. `redis`, `etcd`: if it is that.
  struct victims {
    store& truth;
    server* network = nullptr;
    redis_node* redis = nullptr;
    redlock_store* quorum = nullptr;
    cluster* members = nullptr;
    etcd_store* etcd = nullptr;
    local_node* local = nullptr;
  };

  /// `spawn` starts a new process in place of one that was killed.
  fault_maker(context& shared, const victims& whom,
              std::vector<std::shared_ptr<process>>& processes, std::function<void()> spawn)
      : shared_(shared),
        truth_(whom.truth),
        network_(whom.network),
        redis_(whom.redis),
        quorum_(whom.quorum),
        members_(whom.members),
        etcd_(whom.etcd),
        local_(whom.local),
        processes_(processes),
        spawn_(std::move(spawn)) {}

  void begin();
  /// Ends all faults under way; nothing happens any more.
  void heal();
  /// Kills a process in the middle of its own step.
  void kill_inside(process& victim);
  /// By how much the store's clock was set back, in all: leases may last that much longer.
  [[nodiscard]] duration set_back() const noexcept { return set_back_; }

 private:
  void plan_next(fault which);
  void strike(fault which);
  /// Faults of connections and nodes, where there are many of them. False: it is none of these.
  bool strike_quorum(fault which, process& victim);
  /// Likewise of the members of a cluster.
  bool strike_cluster(fault which, process& victim);
  void cut_some_nodes(process& victim, bool to_store, bool from_store);
  void pause_some_node();
  /// With a life of its own, or with less than it had.
  void restart_some_node(bool keeps_data);
  void end_connections_to(std::size_t node);
  void step_clock_of_some_node();
  void cut(process& victim, bool to_store, bool from_store);
  void kill(const std::shared_ptr<process>& victim);
  void plan_restart();
  void cut_power();
  void suspend_machine();
  void restart_store(bool keeps_data);
  void change_drift(std::int64_t largest);
  void step_store_clock();
  void stop_clock(const std::shared_ptr<process>& victim);
  [[nodiscard]] std::int64_t draw_drift(std::int64_t largest);

  context& shared_;
  store& truth_;
  server* network_;
  redis_node* redis_;
  redlock_store* quorum_;
  cluster* members_;
  etcd_store* etcd_;
  local_node* local_;
  std::vector<std::shared_ptr<process>>& processes_;
  std::function<void()> spawn_;
  duration set_back_{};
};

}  // namespace sallyport::sim
