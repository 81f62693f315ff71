#include "cli/signals.hpp"

#include "cli/message.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sys/signalfd.h>

namespace sallyport::cli {
namespace {

constexpr std::array cancelling{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
constexpr std::array passed_on{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
constexpr std::array ours{SIGCHLD, SIGTSTP, SIGCONT, SIGTTIN, SIGTTOU};

template <class Signals>
bool contains(const Signals& all, int signal) noexcept {
  return std::find(all.begin(), all.end(), signal) != all.end();
}

bool ignored(int signal) noexcept {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

signals::signals() {
  sigset_t read_here;
  sigemptyset(&read_here);
  for (const int each : passed_on) {
    // A blocked signal is queued even when it is ignored: nohup must stay nohup.
    if (!ignored(each)) sigaddset(&read_here, each);
  }
  for (const int each : ours) sigaddset(&read_here, each);
  sigset_t blocked = read_here;
  sigaddset(&blocked, SIGPIPE);  // a broken standard error must not end the renewals
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before_);

  // Inherited as ignored, SIGCHLD would let the kernel reap the command and its exit code.
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &by_default, &child_action_before_);

  source_ = cli::descriptor{::signalfd(-1, &read_here, SFD_CLOEXEC | SFD_NONBLOCK)};
  if (source_.get() < 0) throw system_failure("read signals (signalfd)", errno);
}

std::optional<int> signals::next() const noexcept {
  signalfd_siginfo info{};
  if (::read(source_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

void signals::restore() const noexcept {
  ::sigaction(SIGCHLD, &child_action_before_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool signals::cancels(int signal) noexcept { return contains(cancelling, signal); }
bool signals::forwarded(int signal) noexcept { return contains(passed_on, signal); }

const char* signal_name(int signal) noexcept {
  switch (signal) {
    case SIGHUP:
      return "SIGHUP";
    case SIGINT:
      return "SIGINT";
    case SIGQUIT:
      return "SIGQUIT";
    case SIGTERM:
      return "SIGTERM";
    case SIGKILL:
      return "SIGKILL";
    case SIGTSTP:
      return "SIGTSTP";
    case SIGSTOP:
      return "SIGSTOP";
    case SIGTTIN:
      return "SIGTTIN";
    case SIGTTOU:
      return "SIGTTOU";
    default: {
      const char* const name = ::sigdescr_np(signal);
      return name == nullptr ? "a signal" : name;
    }
  }
}

}  // namespace sallyport::cli
