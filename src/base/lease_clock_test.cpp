#include <sallyport/lease_clock.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <type_traits>

namespace sallyport {
namespace {

static_assert(lease_clock::is_steady);
static_assert(std::is_same_v<lease_clock::time_point::clock, lease_clock>);

lease_clock::time_point kernel_boottime() {
  timespec reading{};
  clock_gettime(CLOCK_BOOTTIME, &reading);
  return lease_clock::time_point{std::chrono::seconds{reading.tv_sec} +
                                 std::chrono::nanoseconds{reading.tv_nsec}};
}

// A clock that stops while the machine sleeps would let a lease look valid after it ended.
TEST(LeaseClock, ReadsTheKernelsBoottime) {
  const auto before = kernel_boottime();
  const auto reading = lease_clock::now();
  const auto after = kernel_boottime();

  EXPECT_LE(before, reading);
  EXPECT_LE(reading, after);
}

TEST(LeaseClock, NeverGoesBack) {
  auto last = lease_clock::now();

  for (int round = 0; round < 1'000; ++round) {
    const auto reading = lease_clock::now();
    ASSERT_LE(last, reading);
    last = reading;
  }
}

}  // namespace
}  // namespace sallyport
