#include "runtime/watchdog.hpp"

#include "base/check.hpp"
#include "runtime/start_thread.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <utility>

namespace sallyport::runtime {
namespace {

int opened(int descriptor, const char* what) {
  if (descriptor < 0) {
    throw lock_error(std::error_code(errno, std::generic_category()), what);
  }
  return descriptor;
}

void drain(int descriptor) {
  std::uint64_t count = 0;
  static_cast<void>(read(descriptor, &count, sizeof count));
}

}  // namespace

watchdog::watchdog(std::function<void()> work)
    : work_(std::move(work)),
      timer_fd_(opened(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK),
                       "the watchdog's timer")),
      stop_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (stop_fd_ < 0) {
    close(timer_fd_);
    opened(stop_fd_, "the watchdog's stop signal");
  }
}

watchdog::~watchdog() {
  stop();
  close(timer_fd_);
  close(stop_fd_);
}

void watchdog::listen(int descriptor, std::function<void()> attend) {
  const base::mutex_lock held{mutex_};
  SALLYPORT_CHECK(!thread_.joinable() && attention_fd_ < 0);
  attention_fd_ = descriptor;
  attend_ = std::move(attend);
}

void watchdog::wake_at(time_point when) {
  const base::mutex_lock held{mutex_};
  if (stopped_ || when >= armed_for_) return;
  armed_for_ = when;
  // Zero would disarm the timer; a time in the past fires at once, as it should.
  const auto since_boot = std::max(when.time_since_epoch(), duration{1});
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
  itimerspec setting{};
  setting.it_value.tv_sec = whole.count();
  setting.it_value.tv_nsec = (since_boot - whole).count();
  SALLYPORT_CHECK(timerfd_settime(timer_fd_, TFD_TIMER_ABSTIME, &setting, nullptr) == 0);
  if (const std::error_code problem = start_held()) throw std::system_error(problem);
}

std::error_code watchdog::start() noexcept {
  const base::mutex_lock held{mutex_};
  return start_held();
}

std::error_code watchdog::start_held() noexcept {
  if (stopped_ || thread_.joinable()) return {};
  return start_thread(thread_, [this] { run(); });
}

void watchdog::run() {
  pthread_setname_np(pthread_self(), "sally-watchdog");
  for (;;) {
    // poll() passes over a negative descriptor.
    std::array<pollfd, 3> wait{
        {{timer_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}, {attention_fd_, POLLIN, 0}}};
    if (poll(wait.data(), wait.size(), -1) < 0) continue;
    if (wait[1].revents != 0) return;
    if (wait[2].revents != 0) attend_();
    if (wait[0].revents == 0) continue;
    {
      const base::mutex_lock held{mutex_};
      drain(timer_fd_);
      armed_for_ = time_point::max();
    }
    work_();
  }
}

void watchdog::stop() {
  std::thread last;
  {
    const base::mutex_lock held{mutex_};
    stopped_ = true;
    last.swap(thread_);
  }
  if (!last.joinable()) return;
  const std::uint64_t one = 1;
  SALLYPORT_CHECK(write(stop_fd_, &one, sizeof one) == sizeof one);
  last.join();
}

}  // namespace sallyport::runtime
