#pragma once

#include "backend_api/backend.hpp"
#include "base/random.hpp"
#include "sim/clock.hpp"
#include "sim/messages.hpp"
#include <sallyport/types.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace sallyport::sim {

class link;
class process;

/// The driver of a simulated store in one process.
/// Thread safety: none.
class store_driver : public backend_api::backend {
 public:
  virtual void attach(backend_api::events& listener) noexcept = 0;
  virtual void connect() = 0;
  /// No request waits for its answer.
  [[nodiscard]] virtual bool idle() const noexcept = 0;
  /// Answers what is overdue; called when a frozen process goes on.
  virtual void answer_overdue() = 0;
  /// Its process was killed: nothing is sent or told any more.
  virtual void die() = 0;
  /// One for each server; none: there is no network between it and its store.
  [[nodiscard]] virtual std::vector<link*> connections() = 0;
};

/// The truth about the locks of one simulated world.
/// Thread safety: none.
class store {
 public:
  store() = default;
  store(const store&) = delete;
  store& operator=(const store&) = delete;
  virtual ~store() = default;

  [[nodiscard]] virtual std::unique_ptr<store_driver> open(process& owner,
                                                           std::uint64_t client) = 0;
  [[nodiscard]] virtual time_point now() const = 0;
  /// Breaks some holder's grant, if anybody holds the name.
  virtual void break_some_grant(const lock_name& name, backend_api::break_mode mode) = 0;
  /// How many names, and things of the dead, are still there after a sweep.
  [[nodiscard]] virtual std::size_t entries_left() = 0;
  /// What is in it, for people.
  [[nodiscard]] virtual std::string remains() const { return {}; }
  /// Whether it refuses this client, whatever it asks for.
  [[nodiscard]] virtual bool always_refuses(std::uint64_t /*client*/) const { return false; }
  /// This client has nothing to do and nothing on its way. For stores that know better than the
  /// checkers what may be left of it.
  virtual void check_nothing_of(std::uint64_t /*client*/) {}
};

/// A machine that serves a store, or a part of one, behind a network: it has its own clock, and can
/// stop, restart and be set wrong.
/// Thread safety: none.
class server {
 public:
  explicit server(sim_clock clock) : clock_(clock) {}
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  virtual ~server() = default;

  /// A message arrives: it is served now, after a pause, or (while the server is down) never.
  void arrive(std::function<void()> serve);
  [[nodiscard]] virtual reply execute(const request& asked, std::uint64_t from) = 0;
  /// What it says to a request that it will not do, and has not begun.
  [[nodiscard]] virtual reply refuse(const request& asked) = 0;
  /// A client has connected: what is said before all requests.
  virtual void greet() {}
  /// Grows when everything ends that was on its way to it.
  [[nodiscard]] virtual std::uint64_t life() const noexcept { return 0; }

  void pause() noexcept { paused_ = true; }
  void resume();
  virtual void stop();
  void start() noexcept { down_ = false; }
  [[nodiscard]] bool reachable() const noexcept { return !down_; }
  [[nodiscard]] bool paused() const noexcept { return paused_; }

  [[nodiscard]] sim_clock& clock() noexcept { return clock_; }
  [[nodiscard]] const sim_clock& clock() const noexcept { return clock_; }

 private:
  sim_clock clock_;
  std::vector<std::function<void()>> backlog_;
  bool paused_ = false;
  bool down_ = false;
};

/// A clock that runs a little wrong, as in the model.
[[nodiscard]] sim_clock draw_store_clock(base::random& random, time_point start);

}  // namespace sallyport::sim
