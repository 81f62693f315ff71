#pragma once

#include <sys/types.h>

namespace sallyport::cli {

/// The terminal on standard input, if this process is in its foreground: it is lent to the command,
/// whose group then gets Ctrl-C and Ctrl-Z, and taken back.
/// REQUIRES: SIGTTOU is blocked (see signals), or a background process is stopped by asking.
class terminal {
 public:
  terminal() noexcept;
  terminal(const terminal&) = delete;
  terminal& operator=(const terminal&) = delete;
  ~terminal() { take_back(); }

  /// Whether standard input is a terminal and ours to give.
  [[nodiscard]] bool in_foreground() const noexcept;
  /// Async-signal-safe: the command's process calls it for itself before exec.
  void give_to(pid_t group) const noexcept;
  /// In the wrapper, when it has been given away.
  void was_given() noexcept { given_ = true; }
  void take_back() noexcept;

 private:
  bool present_;
  bool given_ = false;
};

}  // namespace sallyport::cli
