#pragma once

#include "cli/descriptor.hpp"

#include <atomic>
#include <functional>
#include <optional>
#include <stop_token>
#include <thread>

namespace sallyport::cli {

class signals;

/// Listens to signals while another call blocks, on a thread of its own: a wait for a lock can only
/// be ended through a stop_token, and a signal handler may not request a stop.
/// Thread safety: the constructing thread only; token() may go anywhere.
class interrupter {
 public:
  /// `after_a_second` (may be empty) runs once on the listening thread if it takes that long.
  interrupter(const signals& source, std::function<void()> after_a_second);
  ~interrupter() { finish(); }
  interrupter(const interrupter&) = delete;
  interrupter& operator=(const interrupter&) = delete;

  /// Stopped when a signal came that cancels.
  [[nodiscard]] std::stop_token token() const { return stop_.get_token(); }
  /// Ends the listening; the signal that came, if one did.
  std::optional<int> finish() noexcept;

 private:
  void listen(const std::function<void()>& after_a_second) noexcept;

  const signals& source_;
  cli::descriptor finished_;
  std::stop_source stop_;
  std::atomic<int> came_{0};
  std::thread listener_;
};

}  // namespace sallyport::cli
