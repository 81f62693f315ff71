#pragma once

#include "backends/local/descriptor.hpp"
#include "backends/local/records.hpp"

#include <optional>
#include <string>

/// The kernel's word on processes.
namespace sallyport::backends::local {

/// Who runs under this pid now; nothing when nobody does or the kernel will not say.
[[nodiscard]] std::optional<process_identity> identify(std::int64_t pid);
[[nodiscard]] process_identity this_process();

/// What a watched process is doing.
enum class process_state : std::uint8_t { alive, dead, unknown };

/// A process held by its pidfd, so that another with the same pid is never taken for it.
/// Thread safety: const members.
class watched_process {
 public:
  explicit watched_process(const process_identity& who);

  /// One system call. `unknown` where the kernel gives no pidfd (too many open files, say).
  [[nodiscard]] process_state state() const noexcept;
  /// Readable when the process has ended; -1: there is nothing to wait for.
  [[nodiscard]] int descriptor_number() const noexcept { return handle_.number(); }

 private:
  descriptor handle_;
  process_state without_handle_ = process_state::dead;
};

/// Whether the process stands still until somebody continues it (SIGSTOP, a debugger).
[[nodiscard]] bool stopped(std::int64_t pid);

/// For messages: "1234 (backup, stopped)".
[[nodiscard]] std::string describe_process(std::int64_t pid);

/// The boot of this machine, and the namespaces in which pids and times of this process mean
/// something.
struct machine_identity {
  std::string boot_id;
  std::uint64_t pid_namespace = 0;
  std::uint64_t time_namespace = 0;

  friend bool operator==(const machine_identity&, const machine_identity&) = default;
};
[[nodiscard]] base::result<machine_identity> this_machine();

}  // namespace sallyport::backends::local
