#pragma once

#include "cli/descriptor.hpp"

#include <csignal>
#include <optional>

namespace sallyport::cli {

/// The signals that `run` handles itself. They are blocked in every thread and read from a
/// descriptor, so nothing is ever interrupted; Ctrl-Z can therefore not stop the renewals. Signals
/// that were ignored when the program began (nohup) stay ignored.
/// Thread safety: none; one reader at a time. Make it before any thread exists: threads inherit the
/// mask.
class signals {
 public:
  signals();
  signals(const signals&) = delete;
  signals& operator=(const signals&) = delete;

  /// Becomes readable when a signal is there.
  [[nodiscard]] int descriptor() const noexcept { return source_.get(); }
  /// The next signal's number, if one is there. Never blocks.
  [[nodiscard]] std::optional<int> next() const noexcept;
  /// Undoes everything, in the child before exec. Async-signal-safe.
  void restore() const noexcept;

  /// Whether it ends the wait for a lock.
  [[nodiscard]] static bool cancels(int signal) noexcept;
  /// Whether it is passed on to the command as it came.
  [[nodiscard]] static bool forwarded(int signal) noexcept;

 private:
  sigset_t before_{};
  struct sigaction child_action_before_ {};
  cli::descriptor source_;
};

/// "SIGTERM"; "signal 99" where there is no name.
[[nodiscard]] const char* signal_name(int signal) noexcept;

}  // namespace sallyport::cli
