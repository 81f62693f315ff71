#include "base/epoll.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

namespace sallyport::base {
namespace {

std::atomic<bool> kernel_is_old{false};

int milliseconds_of(const timespec* patience) {
  constexpr std::int64_t longest = 3'600'000;
  if (patience == nullptr) return -1;
  const std::int64_t whole = std::min<std::int64_t>(patience->tv_sec, longest / 1000) * 1000;
  return static_cast<int>(std::min(longest, whole + (patience->tv_nsec + 999'999) / 1'000'000));
}

}  // namespace

int wait_for_events(int set, std::span<epoll_event> events, const timespec* patience) noexcept {
  const int room = static_cast<int>(events.size());
  if (!kernel_is_old.load(std::memory_order_relaxed)) {
    const int count = ::epoll_pwait2(set, events.data(), room, patience, nullptr);
    if (count >= 0 || errno != ENOSYS) return count;
    kernel_is_old.store(true, std::memory_order_relaxed);
  }
  return ::epoll_wait(set, events.data(), room, milliseconds_of(patience));
}

}  // namespace sallyport::base
