#pragma once

#include "cli/descriptor.hpp"
#include <sallyport/lease_clock.hpp>

#include <chrono>
#include <cstdint>
#include <sys/types.h>

namespace sallyport::cli {

/// A small process that outlives a killed wrapper and takes the command along. It sits in a session
/// of its own with all signals blocked and holds no descriptor but one end of a socket pair. The
/// other end is the wrapper's, and the command's until it executes:
///
///   the command's process says who it is before it executes anything, so nothing runs unguarded;
///   end of file means that the wrapper is gone: kill the group, leave when nothing of it lives;
///   a deadline that passes without a later one means that the wrapper is stopped: kill the group.
///
/// What is in the socket when the wrapper dies is still read, so no answer is waited for. On
/// `local:` the wrapper names the guard as companion_pid: its lease lives until both are gone.
///
/// | killed                                   | what happens                                     |
/// |------------------------------------------|--------------------------------------------------|
/// | wrapper, while it waits                  | the guard has no group and leaves                |
/// | wrapper, between fork and exec           | the child keeps the socket open, names its group |
/// |                                          | and executes; the guard then reads the group and |
/// |                                          | the end of file, and kills it                    |
/// | wrapper, while the command runs          | the guard kills the group                        |
/// | guard, before the command starts         | the command is not started                       |
/// | guard, while the command runs            | the wrapper warns and goes on                    |
/// | both                                     | the kernel kills the command itself              |
/// |                                          | (PR_SET_PDEATHSIG), but not its children         |
///
/// Thread safety: none, but announce() is for the child.
class guard {
 public:
  /// Forks. REQUIRES: no thread was started yet. `lease_length` says how often the guard looks after
  /// news. Throws command_failure.
  explicit guard(std::chrono::milliseconds lease_length);
  /// Sends the guard away and reaps it; with a command that was started and not dismissed, lets it
  /// kill the group first.
  ~guard();
  guard(const guard&) = delete;
  guard& operator=(const guard&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// In the child, before exec: this process leads the group to kill. Async-signal-safe. False: the
  /// guard is gone.
  [[nodiscard]] bool announce(pid_t group, lease_clock::time_point kill_at) const noexcept;
  /// In the wrapper: a command was forked that will announce itself.
  void command_started() noexcept { command_started_ = true; }
  /// The group may live until then. A guard that is gone hears nothing.
  void extend(lease_clock::time_point kill_at) const noexcept;
  /// The command has ended: the guard is to go without killing. Call it before the command is reaped, so that
  /// its group's number cannot be another's yet.
  void dismiss() noexcept;
  /// True once, when the guard has killed the group because the deadline it knew had come.
  [[nodiscard]] bool has_killed() const noexcept;
  /// True once, when the guard died before it was dismissed.
  [[nodiscard]] bool found_dead() noexcept;

 private:
  cli::descriptor socket_;
  pid_t pid_ = -1;
  bool command_started_ = false;
  bool dismissed_ = false;
  bool reaped_ = false;
};

}  // namespace sallyport::cli
