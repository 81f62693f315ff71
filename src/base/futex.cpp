#include "base/futex.hpp"

#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sallyport::base {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

void futex_sleep(std::atomic<std::uint32_t>& word, std::uint32_t value) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void futex_sleep_for(std::atomic<std::uint32_t>& word, std::uint32_t value,
                     std::chrono::nanoseconds longest) noexcept {
  if (longest <= std::chrono::nanoseconds::zero()) return;
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(longest);
  const timespec patience{.tv_sec = whole.count(), .tv_nsec = (longest - whole).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, &patience, nullptr, 0);
}

void futex_wake_one(std::atomic<std::uint32_t>* address) noexcept {
  syscall(SYS_futex, address, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace sallyport::base
