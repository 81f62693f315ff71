#include "cli/guard.hpp"

#include "cli/message.hpp"
#include "cli/process_group.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sallyport::cli {
namespace {

struct order {
  enum class kind : std::int32_t { group, extend, dismiss };
  kind what = kind::dismiss;
  std::int32_t group = 0;
  std::int64_t kill_at_ns = 0;
};

bool send_order(int socket, const order& what) noexcept {
  ssize_t sent = 0;
  do {
    sent = ::send(socket, &what, sizeof what, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent == sizeof what;
}

/// No lease is longer: after that the store has long let others in, and waiting helps nobody.
constexpr std::chrono::hours longest_watch{24};

/// What the guard does; ends by _exit.
class watch {
 public:
  explicit watch(int socket) noexcept : socket_(socket) {}

  [[noreturn]] void run() noexcept {
    timer_ = ::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    for (;;) {
      std::array<pollfd, 2> sources{{{socket_, POLLIN, 0}, {timer_, POLLIN, 0}}};
      if (::poll(sources.data(), timer_ < 0 ? 1 : 2, -1) < 0) continue;
      // Orders first: a later deadline may be waiting beside the timer.
      if (sources[0].revents != 0) {
        read_order();
      } else if (sources[1].revents != 0) {
        std::uint64_t expirations = 0;
        [[maybe_unused]] const ssize_t drained = ::read(timer_, &expirations, sizeof expirations);
        if (group_ > 0) {
          send_order(socket_, {});  // first: the wrapper must find it when it sees the end
          ::kill(-group_, SIGKILL);
        }
      }
    }
  }

 private:
  void read_order() noexcept {
    order next;
    const ssize_t length = ::recv(socket_, &next, sizeof next, 0);
    if (length < 0 && errno == EINTR) return;
    if (length != sizeof next) {
      // The wrapper is gone without a word.
      if (group_ > 0) kill_group(group_, longest_watch);
      ::_exit(0);
    }
    switch (next.what) {
      case order::kind::group:
        group_ = next.group;
        arm(next.kill_at_ns);
        return;
      case order::kind::extend:
        arm(next.kill_at_ns);
        return;
      case order::kind::dismiss:
        ::_exit(0);
    }
  }

  void arm(std::int64_t at_ns) const noexcept {
    constexpr std::int64_t second = 1'000'000'000;
    itimerspec when{};
    when.it_value.tv_sec = at_ns / second;
    when.it_value.tv_nsec = at_ns % second;
    if (timer_ >= 0) ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
  }

  int socket_;
  int timer_ = -1;
  pid_t group_ = 0;
};

[[noreturn]] void be_the_guard(int socket) noexcept {
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::setsid();
  ::prctl(PR_SET_NAME, "sallyport-guard");
  // Hold nothing of the caller's: neither its pipes (it may read them to the end) nor its folder.
  ::dup2(socket, 0);
  ::close_range(1, ~0U, 0);
  [[maybe_unused]] const int moved = ::chdir("/");
  watch{0}.run();
}

std::int64_t nanoseconds(lease_clock::time_point when) noexcept {
  return when.time_since_epoch().count();
}

}  // namespace

guard::guard() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw system_failure("make a socket pair for the guard", errno);
  }
  cli::descriptor ours{ends[0]};
  const cli::descriptor theirs{ends[1]};
  pid_ = ::fork();
  if (pid_ < 0) throw system_failure("start the guard process", errno);
  if (pid_ == 0) be_the_guard(theirs.get());
  socket_ = std::move(ours);
}

guard::~guard() {
  if (command_started_ && !dismissed_) {
    socket_.close();  // an exception is on its way: the group must not live on
  } else {
    dismiss();
    if (!reaped_)
      ::kill(pid_, SIGKILL);  // it may be stopped, and would never read that it is to leave
  }
  if (!reaped_) {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
}

bool guard::announce(pid_t group, lease_clock::time_point kill_at) const noexcept {
  return send_order(socket_.get(), {order::kind::group, group, nanoseconds(kill_at)});
}

void guard::extend(lease_clock::time_point kill_at) const noexcept {
  // A full socket belongs to a stopped guard; the next renewal says it again.
  send_order(socket_.get(), {order::kind::extend, 0, nanoseconds(kill_at)});
}

void guard::dismiss() noexcept {
  if (dismissed_) return;
  dismissed_ = true;
  send_order(socket_.get(), {});
}

bool guard::has_killed() const noexcept {
  order report;
  return ::recv(socket_.get(), &report, sizeof report, MSG_DONTWAIT) == sizeof report;
}

bool guard::found_dead() noexcept {
  int status = 0;
  if (dismissed_ || reaped_ || ::waitpid(pid_, &status, WNOHANG) != pid_) return false;
  reaped_ = true;
  return true;
}

}  // namespace sallyport::cli
