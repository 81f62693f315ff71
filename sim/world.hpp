#pragma once

#include "sim/checkers.hpp"
#include "sim/context.hpp"
#include "sim/etcd_store.hpp"
#include "sim/faults.hpp"
#include "sim/local_node.hpp"
#include "sim/process.hpp"
#include "sim/redis_node.hpp"
#include "sim/redlock_store.hpp"
#include "sim/store_node.hpp"
#include "sim/zookeeper_store.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sallyport::sim {

/// How one seed ended.
struct outcome {
  std::uint64_t seed = 0;
  std::uint64_t trace_hash = 0;  ///< equal for every run of one seed of one build
  std::uint64_t events = 0;
  counters count;
  std::optional<violation> failed;
  std::string options;             ///< for people; empty unless lines were kept
  std::vector<std::string> lines;  ///< the end of the trace, if it was kept
};

enum class tracing : std::uint8_t { none, keep, print };

/// One simulated world from its first event to its last. First a phase in which faults happen and
/// nothing unsafe may; then all is healed, and everybody who waits must get through and leave
/// nothing behind.
/// Thread safety: none; separate worlds share nothing.
class world {
 public:
  world(std::uint64_t seed, tracing how);
  world(const world&) = delete;
  world& operator=(const world&) = delete;

  [[nodiscard]] outcome run();

 private:
  [[nodiscard]] fault_maker::victims victims() noexcept;
  [[nodiscard]] store& truth() noexcept;
  void spawn();
  /// Runs until `limit` or until `done()` says so. False: `limit` came first, or something failed.
  template <class Done>
  bool run_until(true_time limit, Done done);
  void run_safety_phase();
  void run_progress_phase();
  void run_cleanup_phase();
  /// By when, after the healing, every wait has ended.
  [[nodiscard]] duration patience() const;

  context shared_;
  checkers checks_;
  // One of these is there.
  std::unique_ptr<store_node> network_;
  std::unique_ptr<redis_node> redis_;
  std::unique_ptr<redlock_store> quorum_;
  std::unique_ptr<etcd_store> etcd_;
  std::unique_ptr<zookeeper_store> zookeeper_;
  std::unique_ptr<local_node> local_;
  store& store_;
  std::vector<std::shared_ptr<process>> processes_;
  fault_maker faults_;
  std::uint64_t next_process_ = 1;
  tracing how_;
};

/// Runs one seed.
[[nodiscard]] outcome simulate(std::uint64_t seed, tracing how = tracing::none);

}  // namespace sallyport::sim
