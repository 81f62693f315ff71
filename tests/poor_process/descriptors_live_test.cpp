#include "tests/contract/kit/waiting.hpp"
#include "tests/poor_process/shortage.hpp"
#include "tests/poor_process/stores.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

// A process that may open no more descriptors: no sockets, no files, no timers.
namespace sallyport::poor {
namespace {

using namespace std::chrono_literals;

constexpr auto patience = 20s;        // only reached when something fails
constexpr int most_descriptors = 50;  // of one client that is opened and used

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all{"/proc/self/fd"};
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

class NoDescriptors : public ::testing::TestWithParam<const char*> {
 protected:
  NoDescriptors() {
    keeper_ = open();
    EXPECT_FALSE(keeper_->who("door"));  // a rich client has all that it needs
  }

  [[nodiscard]] client open() const {
    client_options options;
    options.request_timeout = 500ms;
    options.store_patience = 500ms;
    return client::open(address_of(GetParam()), options);
  }
  /// Nobody holds the name, nobody waits, and another client gets it at once.
  void expect_free() {
    EXPECT_FALSE(keeper_->who("door"));
    mutex lock{*keeper_, "door"};
    EXPECT_TRUE(lock.try_acquire());
  }

 private:
  std::optional<client> keeper_;
};

TEST_P(NoDescriptors, OpeningAndTheFirstAcquireAreErrorsAndLeaveNothingBehind) {
  int errors = 0;
  bool enough = false;
  for (int left = 0; left < most_descriptors && !enough; ++left) {
    SCOPED_TRACE(std::to_string(left) + " descriptors left");
    const std::size_t before = open_descriptors();
    {
      const no_descriptors now{left};
      try {
        const client poor = open();
        mutex lock{poor, "door"};
        std::error_code error;
        auto got = lock.try_acquire(error);
        EXPECT_EQ(got.has_value(), !error) << error.message();
        if (error) ++errors;
        enough = got && got->release() == release_result::released;
      } catch (const lock_error& refused) {
        EXPECT_TRUE(refused.code());
        ++errors;
      }
    }
    EXPECT_LE(open_descriptors(), before);
    expect_free();
    if (HasFailure()) return;
  }
  EXPECT_TRUE(enough);
  EXPECT_GT(errors, 0);
}

TEST_P(NoDescriptors, AClientThatWasOpenedBeforeWorksAgainWhenThereAreSome) {
  const client poor = open();
  mutex lock{poor, "door"};
  std::error_code error;

  {
    const no_descriptors now{0};
    const auto got = lock.try_acquire(error);
    EXPECT_EQ(got.has_value(), !error) << error.message();
  }

  expect_free();
  EXPECT_TRUE(lock.try_acquire_for(patience, {}, error)) << error.message();
}

TEST_P(NoDescriptors, AHolderIsRenewedAndGivesBack) {
  const client poor = open();
  mutex lock{poor, "door", {.lease_length = 3s}};
  auto held = lock.acquire();

  {
    const no_descriptors now{0};
    const auto deadline = held.deadline();
    contract::wait_until(deadline + 50ms);
    EXPECT_TRUE(held.valid());
    EXPECT_EQ(held.release(), release_result::released);
  }

  expect_free();
}

INSTANTIATE_TEST_SUITE_P(Stores, NoDescriptors, ::testing::ValuesIn(all_stores),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace sallyport::poor
