#pragma once

#include "runtime/engine.hpp"
#include "runtime/environment.hpp"
#include "runtime/lock_spec.hpp"
#include "sim/checkers.hpp"
#include "sim/context.hpp"
#include "sim/store.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace sallyport::sim {

class caller;

/// One process on a machine of its own: the real engine between simulated users and a simulated
/// store. It runs in steps; between any two of them it can be frozen, and killed.
/// Thread safety: none. REQUIRES: owned by a shared_ptr; the world drops it to kill it.
class process final : public runtime::environment, public std::enable_shared_from_this<process> {
 public:
  process(context& shared, checkers& checks, store& truth, std::uint64_t number);
  ~process() override;

  /// Connects to the store and lets its callers begin.
  void begin();
  /// Takes one lock of each name, one after the other, each within `patience`; for the end of a
  /// simulation.
  void visit_all_locks(duration patience);
  /// No faults any more: whoever holds gives back soon, and nobody wants anything new.
  void hurry();

  // runtime::environment
  [[nodiscard]] time_point now() const override { return clock_.at(shared_.loop.now()); }
  void wake_at(time_point when) override;
  void tell(std::function<void()> news) override;
  void tell_observer(std::function<void()> event) override { tell(std::move(event)); }
  void tell_lost(runtime::lost_turns lost) noexcept override;
  [[nodiscard]] backend_api::holder_id new_holder_id() override;

  /// Does this as the process's next step: now, or when it is no longer frozen.
  void run(std::function<void()> step);
  void later(duration delay, std::function<void()> step);
  /// When the process's own clock shows `when`, or at once after a freeze that lasts longer.
  void at_local_time(time_point when, std::function<void()> step);

  /// False: it is frozen already.
  bool freeze();
  void thaw();
  /// After the clock was changed.
  void rearm();
  void die();

  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] sim_clock& clock() noexcept { return clock_; }
  [[nodiscard]] runtime::engine& engine() noexcept { return engine_; }
  /// One for each server; none where there is no network.
  [[nodiscard]] std::vector<link*> connections() { return backend_->connections(); }
  [[nodiscard]] bool always_refused() const { return store_.always_refuses(number_); }
  [[nodiscard]] bool frozen() const noexcept { return frozen_; }
  [[nodiscard]] bool dead() const noexcept { return dead_; }
  /// All its callers have gone home.
  [[nodiscard]] bool finished() const;
  /// What those do who have not, for people.
  [[nodiscard]] std::string unfinished() const;
  /// Nothing of it is left, here or (as far as it knows) in the store.
  [[nodiscard]] bool quiet() const { return engine_.quiet() && backend_->idle(); }

  [[nodiscard]] std::shared_ptr<const runtime::lock_spec> spec(std::size_t lock, lock_mode mode,
                                                               bool short_lease, bool fixed);

 private:
  void perform(const std::function<void()>& step);
  void drain();
  void arm();
  void serve_timers(std::uint64_t generation);
  void tell_news();
  void observe(bool served_timers);

  context& shared_;
  checkers& checks_;
  store& store_;
  std::uint64_t number_;
  sim_clock clock_;
  std::vector<std::unique_ptr<caller>> callers_;  // outlive the engine, which points to them
  std::vector<std::shared_ptr<const runtime::lock_spec>> specs_;
  std::unique_ptr<store_driver> backend_;
  runtime::engine engine_;

  std::deque<std::function<void()>> backlog_;
  std::deque<std::function<void()>> news_;
  time_point wakes_at_ = time_point::max();
  std::uint64_t wake_generation_ = 0;
  bool frozen_ = false;
  bool dead_ = false;
  bool running_ = false;
};

}  // namespace sallyport::sim
