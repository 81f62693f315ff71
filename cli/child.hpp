#pragma once

#include "cli/descriptor.hpp"
#include <sallyport/lease_clock.hpp>

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace sallyport::cli {

class guard;
class inherited_descriptors;
class signals;
class terminal;

/// How a command ended.
struct child_end {
  bool signalled = false;
  int number = 0;  ///< the exit code, or the signal's number
};

/// The command, in a process group of its own.
/// Thread safety: none.
class child {
 public:
  struct plan {
    std::vector<char*> command;            ///< ends with null
    std::vector<std::string> environment;  ///< NAME=value
    lease_clock::time_point kill_at;       ///< when the guard kills it, unless told otherwise
  };

  /// What can be seen of it without waiting.
  struct change {
    enum class kind { none, stopped, continued, ended };
    kind what = kind::none;
    int signal = 0;  ///< stopped: by which
  };

  /// Forks; the command executes once it has told the guard which group it leads. Throws
  /// command_failure.
  child(plan what, guard& watcher, const signals& restored, const inherited_descriptors& kept,
        terminal& screen);
  child(const child&) = delete;
  child& operator=(const child&) = delete;

  /// The process and the group it leads.
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// To the whole group.
  void send(int signal) const noexcept;
  /// The next change; an end is seen but not reaped.
  [[nodiscard]] change look() const noexcept;
  /// REQUIRES: look() said ended. After that the group's number may be another's.
  [[nodiscard]] child_end reap() noexcept;
  /// After the end: why nothing was executed, as an errno; empty when it was.
  [[nodiscard]] std::optional<int> start_error() const noexcept;

 private:
  pid_t pid_ = -1;
  cli::descriptor errors_;
};

/// Says why `command` was never executed, and gives the exit code for it. `why` is from start_error().
[[nodiscard]] int tell_start_error(const char* command, int why);

/// The errno that stands for "the guard is gone" in start_error().
inline constexpr int guard_is_gone = -1;

}  // namespace sallyport::cli
