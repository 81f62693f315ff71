#include "sim/world.hpp"

#include "sim/redis_defects.hpp"

#include <algorithm>
#include <chrono>

namespace sallyport::sim {
namespace {

/// A simulation that does this much never ends by itself: somebody spins.
constexpr std::uint64_t most_events = 400'000;

}  // namespace

world::world(std::uint64_t seed, tracing how)
    : shared_(seed, trace{how != tracing::none, how == tracing::print}),
      checks_(shared_),
      network_(shared_.plan.local || shared_.plan.redis || shared_.plan.redlock ||
                       shared_.plan.clustered()
                   ? nullptr
                   : std::make_unique<store_node>(shared_, checks_)),
      redis_(shared_.plan.redis ? std::make_unique<redis_node>(shared_, checks_) : nullptr),
      quorum_(shared_.plan.redlock ? std::make_unique<redlock_store>(shared_, checks_) : nullptr),
      etcd_(shared_.plan.etcd ? std::make_unique<etcd_store>(shared_, checks_) : nullptr),
      zookeeper_(shared_.plan.zookeeper ? std::make_unique<zookeeper_store>(shared_, checks_)
                                        : nullptr),
      local_(shared_.plan.local ? std::make_unique<local_node>(shared_, checks_) : nullptr),
      store_(truth()),
      faults_(shared_, victims(), processes_, [this] { spawn(); }),
      how_(how) {
  shared_.note(local_       ? "a local store"
               : redis_     ? "a Redis server"
               : quorum_    ? "a quorum of Redis servers"
               : etcd_      ? "an etcd cluster"
               : zookeeper_ ? "a ZooKeeper ensemble"
                            : "a networked store");
  if (local_) local_->on_kill([this](process& victim) { faults_.kill_inside(victim); });
}

fault_maker::victims world::victims() noexcept {
  server* const only = redis_ ? static_cast<server*>(redis_.get()) : network_.get();
  return {.truth = store_,
          .network = only,
          .redis = redis_.get(),
          .quorum = quorum_.get(),
          .members = etcd_        ? &etcd_->members()
                     : zookeeper_ ? &zookeeper_->members()
                                  : nullptr,
          .etcd = etcd_.get(),
          .local = local_.get()};
}

store& world::truth() noexcept {
  if (local_) return *local_;
  if (quorum_) return *quorum_;
  if (etcd_) return *etcd_;
  if (zookeeper_) return *zookeeper_;
  if (redis_) return *redis_;
  return *network_;
}

void world::spawn() {
  processes_.push_back(std::make_shared<process>(shared_, checks_, store_, next_process_++));
  processes_.back()->begin();
}

template <class Done>
bool world::run_until(true_time limit, Done done) {
  while (!shared_.failed) {
    if (done()) return true;
    if (!shared_.loop.step(limit)) return false;
    if (shared_.loop.events_run() > most_events)
      shared_.fail("progress", "too many events: somebody spins");
  }
  return false;
}

duration world::patience() const {
  const options& plan = shared_.plan;
  // Requests may come up to two leases late, what they did lapses after a lease or a ticket's life;
  // a client asks a troubled store again after a second at most; and whoever waits is served one
  // after the other.
  const duration ticket = 4 * plan.heartbeat + plan.request_timeout;
  const duration lapses =
      3 * plan.longest_lease + (plan.small_bounds ? longest_small_stretch : 1) * ticket;
  const duration asks_again = 2 * plan.request_timeout + std::chrono::seconds{3};
  const auto waiters = duration::rep{plan.processes} * plan.callers;
  return lapses + asks_again + faults_.set_back() + (quorum_ ? quorum_->slowness() : duration{0}) +
         (etcd_ ? etcd_->slowness() : duration{0}) +
         (zookeeper_ ? zookeeper_->slowness() : duration{0}) +
         waiters * (10 * plan.message_delay + std::chrono::milliseconds{20});
}

void world::run_safety_phase() {
  for (std::uint32_t i = 0; i < shared_.plan.processes; ++i) spawn();
  faults_.begin();
  run_until(shared_.loop.now() + shared_.plan.safety_phase.count(), [] { return false; });
}

void world::run_progress_phase() {
  faults_.heal();
  const auto all_at_home = [this] {
    return std::all_of(processes_.begin(), processes_.end(),
                       [](const auto& each) { return each->finished(); });
  };
  const true_time limit = shared_.loop.now() + patience().count();
  if (!run_until(limit, all_at_home)) {
    std::string who;
    for (const auto& each : processes_) who += each->unfinished();
    who += store_.remains();
    shared_.fail("progress", "after the healing this goes on for ever:" + who);
    return;
  }
  const auto visitor = std::make_shared<process>(shared_, checks_, store_, next_process_++);
  processes_.push_back(visitor);
  visitor->visit_all_locks(patience());
  const true_time visit_limit = shared_.loop.now() + 4 * patience().count();
  if (!run_until(visit_limit, all_at_home)) {
    shared_.fail("progress", "a fresh process did not come through");
  }
}

void world::run_cleanup_phase() {
  const duration lapses = patience() + 2 * shared_.plan.longest_lease;
  run_until(shared_.loop.now() + lapses.count(), [] { return false; });
  if (shared_.failed) return;
  for (const auto& each : processes_) {
    if (!each->quiet()) {
      shared_.fail("nothing left behind",
                   "process " + std::to_string(each->number()) + " is not quiet at the end");
    }
  }
  if (const std::size_t left = store_.entries_left(); left > 0) {
    shared_.fail("nothing left behind",
                 std::to_string(left) + " names are in the store at the end");
  }
}

outcome world::run() {
  run_safety_phase();
  if (!shared_.failed) run_progress_phase();
  if (!shared_.failed) run_cleanup_phase();
  outcome out;
  out.seed = shared_.plan.seed;
  out.trace_hash = shared_.log.hash();
  out.events = shared_.loop.events_run();
  out.count = shared_.count;
  out.failed = shared_.failed;
  if (how_ != tracing::none) {
    out.options = describe(shared_.plan);
    out.lines.assign(shared_.log.lines().begin(), shared_.log.lines().end());
  }
  return out;
}

outcome simulate(std::uint64_t seed, tracing how) { return world{seed, how}.run(); }

}  // namespace sallyport::sim
