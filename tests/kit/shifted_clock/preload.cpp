// Preloaded into a server: its wall clock says what a file says (clock_page.hpp). The monotonic
// clocks are left alone, so timeouts and event loops go on as ever. Nothing here allocates or needs
// another function of the C library's clocks: allocators read the clock before they can be used.

#include "tests/kit/shifted_clock/clock_page.hpp"

#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

using sallyport::kit::clock_page;

constexpr std::int64_t million = 1'000'000;

const clock_page* page = nullptr;

/// Until this has run, the clock is the real one.
__attribute__((constructor)) void map_page() {
  // No other thread is there yet.
  const char* path =
      ::getenv(sallyport::kit::clock_page_variable);  // NOLINT(concurrency-mt-unsafe)
  if (path == nullptr) return;
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) ::_exit(126);  // a test must not run on with the wrong clock
  void* mapped = ::mmap(nullptr, sizeof(clock_page), PROT_READ, MAP_SHARED, file, 0);
  ::close(file);
  if (mapped == MAP_FAILED) ::_exit(126);
  page = static_cast<const clock_page*>(mapped);
}

void shift(timespec& time) {
  if (page == nullptr) return;
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  std::int64_t mode = 0;
  std::int64_t microseconds = 0;
  do {
    before = page->changes.load();
    mode = page->slots[before % 2].mode.load();
    microseconds = page->slots[before % 2].microseconds.load();
    after = page->changes.load();
  } while (before != after);

  if (mode == clock_page::frozen) time = {};
  const std::int64_t total = time.tv_sec * million + microseconds;
  time.tv_sec = total / million;
  time.tv_nsec += (total % million) * 1'000;
  if (time.tv_nsec >= 1'000'000'000) {
    time.tv_nsec -= 1'000'000'000;
    ++time.tv_sec;
  }
}

int read_clock(clockid_t clock, timespec& time) {
  const auto failed = static_cast<int>(::syscall(SYS_clock_gettime, clock, &time));
  if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(time);
  return failed;
}

}  // namespace

#define SALLYPORT_VISIBLE extern "C" __attribute__((visibility("default")))

SALLYPORT_VISIBLE int clock_gettime(clockid_t clock, timespec* time) noexcept {
  return read_clock(clock, *time);
}

SALLYPORT_VISIBLE int gettimeofday(timeval* __restrict time, void* __restrict) noexcept {
  timespec now{};
  if (read_clock(CLOCK_REALTIME, now) != 0) return -1;
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1'000;
  return 0;
}

SALLYPORT_VISIBLE time_t time(time_t* out) noexcept {
  timespec now{};
  if (read_clock(CLOCK_REALTIME, now) != 0) return -1;
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}
