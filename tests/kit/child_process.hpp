#pragma once

#include "tests/kit/waiting.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace sallyport::kit {

/// Who a program runs as; for servers that refuse to run as root.
struct user_and_group {
  uid_t user;
  gid_t group;
};

struct child_options {
  std::string program;                   // a path, or a name to be looked up in PATH
  std::string called_as;                 // argv[0]; the program itself when empty
  std::vector<std::string> arguments;    // after argv[0]
  std::vector<std::string> environment;  // "NAME=value", on top of the test's own
  std::filesystem::path folder;          // where it runs
  std::filesystem::path log;             // its stdout and stderr, appended
  std::optional<user_and_group> run_as;  // needs root; `folder` and `log` are the caller's business
};

/// A program in a process of its own that writes to a log file. It inherits no descriptors, dies
/// with the thread that started it (PR_SET_PDEATHSIG: start servers from a thread that outlives
/// them, such as the test's main thread), and is killed and reaped by the destructor.
/// Thread safety: none.
class child_process {
 public:
  /// Starts it; throws kit_error when that fails. The program may end at any time after.
  explicit child_process(child_options options);
  child_process(const child_process&) = delete;
  child_process& operator=(const child_process&) = delete;
  ~child_process();

  /// SIGTERM, a bounded wait, then SIGKILL. Returns how it ended, as wait_for_end.
  int stop(lease_clock::duration within = patience);
  /// SIGKILL, and waits until it is gone.
  void kill();
  /// SIGSTOP, and waits until all of it stands still.
  void pause();
  /// SIGCONT.
  void resume();
  /// Any other signal; nothing when the process has ended.
  void signal(int number);

  /// Waits for the end: the exit code, or minus the signal that ended it; empty: it runs on.
  std::optional<int> wait_for_end(lease_clock::duration within = patience);
  /// Looks whether it still runs (or stands still).
  [[nodiscard]] bool running();
  /// Whether pause() was the last word.
  [[nodiscard]] bool paused() const noexcept { return paused_; }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// The last lines of the log, for messages.
  [[nodiscard]] std::string log_tail() const;
  [[nodiscard]] const std::filesystem::path& log() const noexcept { return options_.log; }

 private:
  /// Looks once whether the process has changed: ended, or (with `stopped`) been stopped.
  bool look(bool stopped);

  child_options options_;
  pid_t pid_ = -1;
  int handle_ = -1;  // a pidfd, readable once the process has ended
  bool paused_ = false;
  std::optional<int> ended_;
};

}  // namespace sallyport::kit
