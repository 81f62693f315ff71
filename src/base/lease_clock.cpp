#include <sallyport/lease_clock.hpp>

#include <ctime>

namespace sallyport {

lease_clock::time_point lease_clock::now() noexcept {
  timespec reading{};
  clock_gettime(CLOCK_BOOTTIME, &reading);
  return time_point{std::chrono::seconds{reading.tv_sec} +
                    std::chrono::nanoseconds{reading.tv_nsec}};
}

}  // namespace sallyport
