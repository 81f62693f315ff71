#pragma once

#include "tests/contract/kit/waiting.hpp"

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace sallyport::contract {

/// The program contract_holder (tests/contract/holder_program.cpp says its commands) in a process
/// of its own, to be killed, stopped and continued. Every wait is bounded by `patience`. The
/// destructor kills and reaps the process, and no other.
/// Thread safety: none.
class holder_process {
 public:
  /// Starts the program and waits for its "ready". A failure fails the test and leaves a process
  /// that answers nothing.
  holder_process(const std::string& store, const std::string& name,
                 std::vector<std::string> options = {});
  holder_process(const holder_process&) = delete;
  holder_process& operator=(const holder_process&) = delete;
  ~holder_process();

  /// Sends a command and waits for its answer; "" when none came.
  std::string ask(const std::string& command);
  /// Sends a command without waiting, for one that blocks. False: the process is gone.
  bool send(const std::string& command);
  /// The next answer; "" when none came in time or the process has ended.
  std::string answer(lease_clock::duration within = patience);

  /// SIGKILL, and waits until the process is gone.
  void kill();
  /// SIGSTOP, and waits until it stands still.
  void stop();
  /// SIGCONT.
  void resume();
  /// Waits for the end of the process: its exit code, or minus the signal that ended it; empty: it
  /// runs on.
  std::optional<int> wait_for_end(lease_clock::duration within = patience);

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] bool running() const noexcept { return pid_ > 0 && !ended_; }

 private:
  void signal(int number);
  /// Looks once whether the process has changed: ended, or (with `stopped`) been stopped.
  bool look(bool stopped);

  pid_t pid_ = -1;
  int channel_ = -1;  // our end of a socket pair that is the program's stdin and stdout
  std::string unread_;
  std::optional<int> ended_;
};

}  // namespace sallyport::contract
