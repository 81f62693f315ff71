#include "cli/child.hpp"

#include "cli/exit_codes.hpp"
#include "cli/guard.hpp"
#include "cli/inherited.hpp"
#include "cli/message.hpp"
#include "cli/signals.hpp"
#include "cli/terminal.hpp"
#include "cli/text.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace sallyport::cli {
namespace {

/// Everything the new process needs, made before the fork: other threads exist, so between fork and
/// exec only async-signal-safe calls are allowed.
struct prepared {
  char* const* command;
  char* const* environment;
  lease_clock::time_point kill_at;
  pid_t wrapper;
  int errors;
  bool give_terminal;
};

[[noreturn]] void give_up(int errors, int why) noexcept {
  [[maybe_unused]] const ssize_t told = ::write(errors, &why, sizeof why);
  ::_exit(exit_code::command_not_found);
}

[[noreturn]] void become(const prepared& what, const guard& watcher, const signals& restored,
                         const inherited_descriptors& kept, const terminal& screen) noexcept {
  ::setpgid(0, 0);
  // The second line behind the guard. It follows the thread that forked: the wrapper's main thread,
  // which lives as long as the wrapper.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != what.wrapper) ::_exit(exit_code::command_not_found);
  if (!watcher.announce(::getpid(), what.kill_at)) give_up(what.errors, guard_is_gone);
  if (what.give_terminal) screen.give_to(::getpid());
  kept.close_others_on_exec();
  restored.restore();
  ::execvpe(what.command[0], what.command, what.environment);
  give_up(what.errors, errno);
}

}  // namespace

child::child(plan what, guard& watcher, const signals& restored, const inherited_descriptors& kept,
             terminal& screen) {
  std::vector<char*> environment;
  environment.reserve(what.environment.size() + 1);
  for (std::string& each : what.environment) environment.push_back(each.data());
  environment.push_back(nullptr);

  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw system_failure("make a pipe", errno);
  errors_ = cli::descriptor{ends[0]};
  const cli::descriptor their_errors{ends[1]};
  const bool give_terminal = screen.in_foreground();
  const prepared all{what.command.data(), environment.data(), what.kill_at,
                     ::getpid(),          their_errors.get(), give_terminal};
  pid_ = ::fork();
  if (pid_ < 0) throw system_failure("start the command's process", errno);
  if (pid_ == 0) become(all, watcher, restored, kept, screen);
  watcher.command_started();
  // Both sides do it: whoever comes first, signals sent from here on reach the group.
  ::setpgid(pid_, pid_);
  if (give_terminal) screen.was_given();
}

void child::send(int signal) const noexcept { ::kill(-pid_, signal); }

child::change child::look() const noexcept {
  siginfo_t info{};
  const auto peek = [&](int flags) {
    info = {};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, flags | WNOHANG) == 0 &&
           info.si_pid == pid_;
  };
  if (peek(WEXITED | WNOWAIT)) return {change::kind::ended, 0};
  if (peek(WSTOPPED)) return {change::kind::stopped, info.si_status};
  if (peek(WCONTINUED)) return {change::kind::continued, 0};
  return {};
}

child_end child::reap() noexcept {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return {true, WTERMSIG(status)};
  return {false, WEXITSTATUS(status)};
}

int tell_start_error(const char* command, int why) {
  const std::string program = quoted(command);
  if (why == guard_is_gone) {
    say("the guard process was killed before " + program + " started, so it was not; try again");
    return exit_code::system_refused;
  }
  if (why == ENOENT) {
    const bool has_folder = std::strchr(command, '/') != nullptr;
    say("cannot run " + program +
        (has_folder ? ": no such file (or its interpreter is missing)"
                    : ": command not found in PATH"));
    return exit_code::command_not_found;
  }
  say("cannot run " + program + ": " + std::system_category().message(why) +
      (why == EACCES ? "; is it a file with the x permission (chmod +x)?" : ""));
  return exit_code::cannot_execute;
}

std::optional<int> child::start_error() const noexcept {
  int why = 0;
  if (::read(errors_.get(), &why, sizeof why) != sizeof why) return std::nullopt;
  return why;
}

}  // namespace sallyport::cli
