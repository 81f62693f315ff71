#pragma once

#include <sallyport/lease_clock.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

/// Bounded waiting for what other threads and the store do.
namespace sallyport::contract {

/// Longer than anything that works takes, also on a machine that others keep busy; only failures
/// wait that long.
inline constexpr std::chrono::seconds patience{20};

/// What a busy machine may add to a time that is promised. More than that is a bug.
inline constexpr std::chrono::seconds slack{5};

/// Asks until the answer is true; false when `within` has passed.
[[nodiscard]] bool eventually(const std::function<bool()>& holds,
                              lease_clock::duration within = patience);

/// Returns when the lease clock has reached `when`.
void wait_until(lease_clock::time_point when);

/// A gate between threads that opens once. Bounded: open_within fails the test rather than hang it.
/// Thread safety: all members.
class signal_flag {
 public:
  void raise() noexcept { raised_.store(true); }
  [[nodiscard]] bool raised() const noexcept { return raised_.load(); }
  /// False, and the test fails, when nobody raised it in time.
  bool wait() const {
    if (eventually([this] { return raised(); })) return true;
    ADD_FAILURE() << "waited in vain for another thread";
    return false;
  }

 private:
  std::atomic<bool> raised_{false};
};

/// Work on a thread of its own. What it throws fails the test. The destructor joins, so `work` has
/// to end by itself.
template <class Result>
class background {
 public:
  template <class Work>
  explicit background(Work work)
      : shared_(std::make_shared<shared>()),
        thread_([state = shared_, todo = std::move(work)]() mutable {
          try {
            state->result.emplace(todo());
          } catch (const std::exception& error) {
            ADD_FAILURE() << "in the background: " << error.what();
          }
          state->done.store(true);
        }) {}
  background(background&&) noexcept = default;
  background& operator=(background&&) = delete;
  background(const background&) = delete;
  background& operator=(const background&) = delete;
  ~background() {
    if (thread_.joinable()) thread_.join();
  }

  [[nodiscard]] bool done() const noexcept { return shared_->done.load(); }
  /// Waits for the work; what it returned, or an empty Result when it threw. Call once.
  Result get() {
    thread_.join();
    return shared_->result ? std::move(*shared_->result) : Result{};
  }

 private:
  struct shared {
    std::optional<Result> result;
    std::atomic<bool> done{false};
  };

  std::shared_ptr<shared> shared_;
  std::thread thread_;
};

template <class Work>
background(Work) -> background<std::invoke_result_t<Work&>>;

}  // namespace sallyport::contract
