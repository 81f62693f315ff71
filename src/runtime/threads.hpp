#pragma once

#include "runtime/environment.hpp"
#include "runtime/loss_notifier.hpp"
#include "runtime/notifier.hpp"
#include "runtime/watchdog.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <system_error>
#include <utility>

namespace sallyport::runtime {

/// The product's environment: the machine's lease clock, a watchdog thread, a notifier thread, a
/// thread that announces losses, the kernel's randomness. Each thread starts when first needed.
class threads final : public environment {
 public:
  /// `work` is what the watchdog calls: the engine's run_due(). `missed`: see notifier.
  explicit threads(std::function<void()> work, std::function<void(std::uint64_t)> missed = {})
      : notifier_(std::move(missed)), watchdog_([this, work = std::move(work)] {
          work();
          announce_losses();
        }) {}

  [[nodiscard]] time_point now() const override;
  void wake_at(time_point when) override { watchdog_.wake_at(when); }
  void tell(std::function<void()> news) override { notifier_.tell(std::move(news)); }
  void tell_observer(std::function<void()> event) override {
    notifier_.tell_observer(std::move(event));
  }
  void tell_lost(lost_turns lost) noexcept override;
  /// REQUIRES: one caller at a time (the engine calls it under its mutex).
  [[nodiscard]] backend_api::holder_id new_holder_id() override;

  /// So that no later call has to start one: see watchdog::start and notifier::start.
  [[nodiscard]] std::error_code start_timers() noexcept;
  [[nodiscard]] std::error_code start_news() noexcept;

  /// See watchdog::listen.
  void listen(int descriptor, std::function<void()> attend) {
    watchdog_.listen(descriptor, std::move(attend));
  }

  /// No timer is served after this returned.
  void stop_timers() { watchdog_.stop(); }
  /// No user code runs after this returned (unless called inside it).
  void stop_news() {
    losses_.stop();
    notifier_.stop();
  }
  [[nodiscard]] notifier& news() noexcept { return notifier_; }

 private:
  void announce_losses();

  // Drawn from the kernel by the block: a system call for each would cost more than the rest of an
  // acquire.
  std::array<backend_api::holder_id, 32> fresh_ids_;
  std::size_t ids_left_ = 0;
  // Set once: every acquire looks.
  std::atomic<bool> timers_started_{false};
  std::atomic<bool> news_started_{false};
  notifier notifier_;
  loss_notifier losses_;
  watchdog watchdog_;
};

}  // namespace sallyport::runtime
