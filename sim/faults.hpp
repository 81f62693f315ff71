#pragma once

#include "sim/context.hpp"
#include "sim/local_node.hpp"
#include "sim/process.hpp"
#include "sim/redis_node.hpp"
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
  /// `spawn` starts a new process in place of one that was killed.
  /// One of `network` and `local` is there: the store that `truth` is. `redis`: the former, if it is
  /// that.
  fault_maker(context& shared, store& truth, remote_store* network, redis_node* redis,
              local_node* local, std::vector<std::shared_ptr<process>>& processes,
              std::function<void()> spawn)
      : shared_(shared),
        truth_(truth),
        network_(network),
        redis_(redis),
        local_(local),
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
  remote_store* network_;
  redis_node* redis_;
  local_node* local_;
  std::vector<std::shared_ptr<process>>& processes_;
  std::function<void()> spawn_;
  duration set_back_{};
};

}  // namespace sallyport::sim
