#include "cli/guard.hpp"

#include "cli/message.hpp"
#include "cli/process_group.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace sallyport::cli {
namespace {

struct order {
  enum class kind : std::int32_t { group, extend, killed };
  kind what = kind::killed;
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

/// What the guard does; ends by _exit. Orders do not wake it: they wait in the socket until its timer
/// says that it is time to read them, or the wrapper is gone. So a short command costs no wake-up.
class watch {
 public:
  watch(int socket, std::chrono::milliseconds look_every) noexcept
      : socket_(socket), look_every_(look_every) {}

  [[noreturn]] void run() noexcept {
    timer_ = ::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    arm(lease_clock::now() + look_every_);
    for (;;) {
      // No events are asked for: the end of the other side is always told.
      std::array<pollfd, 2> sources{{{socket_, 0, 0}, {timer_, POLLIN, 0}}};
      if (::poll(sources.data(), timer_ < 0 ? 1 : 2, -1) < 0) continue;
      std::uint64_t expirations = 0;
      [[maybe_unused]] const ssize_t drained = ::read(timer_, &expirations, sizeof expirations);
      read_orders();
      if (sources[0].revents != 0) {
        if (group_ > 0) kill_group(group_, longest_watch);
        ::_exit(0);
      }
      look_at_the_clock();
    }
  }

 private:
  void read_orders() noexcept {
    order next;
    while (::recv(socket_, &next, sizeof next, MSG_DONTWAIT) == sizeof next) {
      switch (next.what) {
        case order::kind::group:
          group_ = next.group;
          kill_at_ = at(next);
          break;
        case order::kind::extend:
          kill_at_ = at(next);
          break;
        case order::kind::killed:
          break;
      }
    }
  }

  void look_at_the_clock() noexcept {
    const auto now = lease_clock::now();
    if (group_ == 0) {
      arm(now + look_every_);
    } else if (now < kill_at_) {
      arm(kill_at_);
    } else {
      send_order(socket_, {order::kind::killed});  // first: the wrapper may see the end at once
      ::kill(-group_, SIGKILL);
      arm(now + look_every_);
    }
  }

  static lease_clock::time_point at(const order& given) noexcept {
    return lease_clock::time_point{std::chrono::nanoseconds{given.kill_at_ns}};
  }

  void arm(lease_clock::time_point when) const noexcept {
    const auto since_boot = when.time_since_epoch();
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since_boot);
    itimerspec next{};
    next.it_value.tv_sec = seconds.count();
    next.it_value.tv_nsec = (since_boot - seconds).count();
    ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &next, nullptr);
  }

  int socket_;
  std::chrono::milliseconds look_every_;
  int timer_ = -1;
  pid_t group_ = 0;
  lease_clock::time_point kill_at_;
};

[[noreturn]] void be_the_guard(int socket, std::chrono::milliseconds look_every) noexcept {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  ::setsid();
  ::prctl(PR_SET_NAME, "sallyport-guard");
  // Hold nothing of the caller's: neither its pipes (it may read them to the end) nor its folder.
  ::dup2(socket, 0);
  ::close_range(1, ~0U, 0);
  [[maybe_unused]] const int moved = ::chdir("/");
  watch{0, look_every}.run();
}

std::int64_t nanoseconds(lease_clock::time_point when) noexcept {
  return when.time_since_epoch().count();
}

}  // namespace

guard::guard(std::chrono::milliseconds lease_length) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw system_failure("make a socket pair for the guard", errno);
  }
  cli::descriptor ours{ends[0]};
  const cli::descriptor theirs{ends[1]};
  pid_ = ::fork();
  if (pid_ < 0) throw system_failure("start the guard process", errno);
  if (pid_ == 0) be_the_guard(theirs.get(), lease_length / 4);
  socket_ = std::move(ours);
}

guard::~guard() {
  if (command_started_ && !dismissed_) {
    socket_.close();  // an exception is on its way: the group must not live on
  } else {
    dismiss();
  }
  int status = 0;
  while (!reaped_ && ::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
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
  if (std::exchange(dismissed_, true)) return;
  // Not by an order: it would have to wake up to read it, and may be stopped.
  if (!reaped_) ::kill(pid_, SIGKILL);
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
