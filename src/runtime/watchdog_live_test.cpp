#include "runtime/watchdog.hpp"

#include <sallyport/lease_clock.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <sys/eventfd.h>
#include <unistd.h>

namespace sallyport::runtime {
namespace {

using namespace std::chrono_literals;

constexpr auto long_enough = 20s;  // only reached when the watchdog does not come at all

TEST(Watchdog, WorksNotBeforeItsTime) {
  std::binary_semaphore worked{0};
  std::atomic<time_point> when{time_point::min()};
  watchdog dog([&] {
    when = lease_clock::now();
    worked.release();
  });
  const time_point due = lease_clock::now() + 50ms;

  dog.wake_at(due);

  ASSERT_TRUE(worked.try_acquire_for(long_enough));
  EXPECT_GE(when.load(), due);
}

TEST(Watchdog, ServesATimeInThePastAtOnce) {
  std::binary_semaphore worked{0};
  watchdog dog([&] { worked.release(); });

  dog.wake_at(time_point{});

  EXPECT_TRUE(worked.try_acquire_for(long_enough));
}

TEST(Watchdog, PrefersTheEarlierWish) {
  std::binary_semaphore worked{0};
  watchdog dog([&] { worked.release(); });

  dog.wake_at(lease_clock::now() + 1h);
  dog.wake_at(lease_clock::now() + 10ms);
  dog.wake_at(lease_clock::now() + 2h);

  EXPECT_TRUE(worked.try_acquire_for(long_enough));
}

TEST(Watchdog, CanBeArmedFromItsOwnWork) {
  std::counting_semaphore<> worked{0};
  watchdog* self = nullptr;
  std::atomic<int> rounds{0};
  watchdog dog([&] {
    worked.release();
    if (++rounds < 5) self->wake_at(lease_clock::now() + 1ms);
  });
  self = &dog;

  dog.wake_at(lease_clock::now());

  for (int i = 0; i < 5; ++i) ASSERT_TRUE(worked.try_acquire_for(long_enough));
}

TEST(Watchdog, MindsADescriptorBesideItsTimer) {
  const int announced = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  ASSERT_GE(announced, 0);
  std::binary_semaphore attended{0};
  std::binary_semaphore worked{0};
  {
    watchdog dog([&] { worked.release(); });
    dog.listen(announced, [&] {
      eventfd_t count = 0;
      eventfd_read(announced, &count);
      attended.release();
    });
    dog.wake_at(lease_clock::now());
    ASSERT_TRUE(worked.try_acquire_for(long_enough));

    eventfd_write(announced, 1);
    EXPECT_TRUE(attended.try_acquire_for(long_enough));
    dog.wake_at(lease_clock::now());
    EXPECT_TRUE(worked.try_acquire_for(long_enough));
  }
  close(announced);
}

TEST(Watchdog, DoesNoWorkAfterStop) {
  std::atomic<int> worked{0};
  watchdog dog([&] { ++worked; });
  dog.wake_at(lease_clock::now() + 1h);

  dog.stop();
  dog.wake_at(lease_clock::now());

  EXPECT_EQ(worked.load(), 0);
}

}  // namespace
}  // namespace sallyport::runtime
