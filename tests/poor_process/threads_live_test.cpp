#include "tests/poor_process/shortage.hpp"
#include "tests/poor_process/stores.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace sallyport::poor {
namespace {

using namespace std::chrono_literals;

constexpr auto patience = 20s;  // only reached when something fails

template <class Condition>
bool eventually(Condition condition) {
  const auto until = lease_clock::now() + patience;
  while (lease_clock::now() < until) {
    if (condition()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return condition();
}

/// A process that may have no more threads.
class NoThreads : public ::testing::TestWithParam<const char*> {
 protected:
  NoThreads() : keeper_(open()) {}

  [[nodiscard]] client open(client_options options = {}) const {
    return client::open(address_of(GetParam()), std::move(options));
  }
  /// Nobody holds the name, nobody waits, and another client gets it at once.
  void expect_free(const char* name) {
    EXPECT_FALSE(keeper_->who(name));
    mutex lock{*keeper_, name};
    EXPECT_TRUE(lock.try_acquire());
  }

  /// A lease that ends by itself.
  [[nodiscard]] static lock_options ending() {
    return {.lease_length = 1s, .renew = renewal::never};
  }

 private:
  std::optional<client> keeper_;  // the store outlives the clients of the test
};

TEST_P(NoThreads, EveryWayToAcquireIsAnErrorAndLeavesNothingBehind) {
  const client poor = open();
  mutex lock{poor, "door"};
  std::error_code error;

  {
    const no_threads now;
    EXPECT_FALSE(lock.try_acquire(error));
    EXPECT_EQ(error, errc::no_thread);
    EXPECT_FALSE(lock.acquire(error));
    EXPECT_EQ(error, errc::no_thread);
    EXPECT_FALSE(lock.try_acquire_for(10s, {}, error));
    EXPECT_EQ(error, errc::no_thread);
    EXPECT_EQ(error, std::errc::resource_unavailable_try_again);
    try {
      static_cast<void>(lock.acquire());
      ADD_FAILURE() << "nothing was thrown";
    } catch (const lock_error& refused) {
      EXPECT_EQ(refused.code(), errc::no_thread);
    }
  }

  expect_free("door");
  EXPECT_TRUE(lock.try_acquire(error));
  EXPECT_FALSE(error);
}

class NoThreadsToOpen : public NoThreads {};

TEST_P(NoThreadsToOpen, OneIsNeededByEtcdAloneAndIsAnErrorThere) {
  const bool needs_one = std::string(GetParam()) == "etcd";
  std::error_code error;

  {
    const no_threads now;
    try {
      static_cast<void>(open());
    } catch (const lock_error& refused) {
      error = refused.code();
    }
  }

  EXPECT_EQ(error, needs_one ? make_error_code(errc::no_thread) : std::error_code{});
  EXPECT_FALSE(open().who("door"));
}

TEST_P(NoThreads, AnObserverNeedsOneTooBeforeAnythingIsSent) {
  client_options watched;
  watched.watcher = std::make_shared<metrics>();
  const client poor = open(watched);
  mutex lock{poor, "door"};
  std::error_code error;

  {
    const no_threads now;
    EXPECT_FALSE(lock.try_acquire(error));
    EXPECT_EQ(error, errc::no_thread);
  }

  expect_free("door");
  EXPECT_TRUE(lock.try_acquire(error));
}

TEST_P(NoThreads, AnElectionIsNotObserved) {
  const client poor = open();
  election lead{poor, "lead"};

  {
    const no_threads now;
    try {
      const auto observing = lead.observe([](const auto&) {});
      ADD_FAILURE() << "nothing was thrown";
    } catch (const lock_error& refused) {
      EXPECT_EQ(refused.code(), errc::no_thread);
    }
  }

  std::atomic<bool> heard{false};
  const auto observing = lead.observe([&](const auto&) { heard = true; });
  EXPECT_TRUE(eventually([&] { return heard.load(); }));
}

TEST_P(NoThreads, AClientThatHasItsThreadsWorksAsEver) {
  const client poor = open();
  mutex lock{poor, "door"};
  static_cast<void>(lock.acquire());

  const no_threads now;
  auto held = lock.acquire();

  EXPECT_TRUE(held.valid());
  EXPECT_EQ(held.release(), release_result::released);
}

TEST_P(NoThreads, ALossIsToldAsSoonAsThereIsAThreadForIt) {
  const client poor = open();
  mutex lock{poor, "door", ending()};
  const auto held = lock.acquire();
  const std::stop_token gone = held.lost();
  std::atomic<bool> called{false};
  const std::stop_callback callback{gone, [&] { called = true; }};

  {
    const no_threads now;
    EXPECT_TRUE(eventually([&] { return held.state() == lease_state::lost; }));
    EXPECT_FALSE(gone.stop_requested());
  }

  EXPECT_TRUE(eventually([&] { return called.load(); }));
  EXPECT_TRUE(gone.stop_requested());
}

TEST_P(NoThreads, ALossForWhichThereNeverWasAThreadIsToldWhenTheClientCloses) {
  std::optional<client> poor = open();
  std::stop_token gone;
  std::optional<no_threads> now;
  {
    mutex lock{*poor, "door", ending()};
    const auto held = lock.acquire();
    gone = held.lost();
    now.emplace();
    EXPECT_TRUE(eventually([&] { return held.state() == lease_state::lost; }));
    poor.reset();
  }

  EXPECT_TRUE(gone.stop_requested());
}

INSTANTIATE_TEST_SUITE_P(Stores, NoThreadsToOpen, ::testing::ValuesIn(all_stores),
                         [](const auto& each) { return std::string(each.param); });
// Not on etcd: gRPC starts threads when it likes to, and counts those that it could not start as running. It waits for
// them when its last user is gone.
INSTANTIATE_TEST_SUITE_P(Stores, NoThreads,
                         ::testing::Values("memory", "local", "redis", "postgres", "mariadb",
                                           "memcached", "zookeeper"),
                         [](const auto& each) { return std::string(each.param); });

/// A full queue of events, and a lease that lapses meanwhile.
TEST(FullQueue, OfEventsDropsNoLossAndIsCounted) {
  struct blocked final : observer {
    void acquired(const lock_event&) override {
      while (!leave) std::this_thread::sleep_for(1ms);
      ++heard;
    }
    void released(const lock_event&) override { ++heard; }
    void lost(const lock_event&) override { ++heard; }
    void missed(std::uint64_t events) override { dropped += events; }
    std::atomic<bool> leave{false};
    std::atomic<std::uint64_t> heard{0};
    std::atomic<std::uint64_t> dropped{0};
  };
  const auto watcher = std::make_shared<blocked>();
  client_options options;
  options.watcher = watcher;
  const client watched = client::open("memory:", options);
  mutex ends{watched, "ends", {.lease_length = 300ms, .renew = renewal::never}};
  mutex busy{watched, "busy"};
  const auto lapsing = ends.acquire();
  std::atomic<bool> called{false};
  const std::stop_callback callback{lapsing.lost(), [&] { called = true; }};
  constexpr std::uint64_t turns = 40'000;

  for (std::uint64_t i = 0; i < turns; ++i) static_cast<void>(busy.acquire());
  const bool told = eventually([&] { return called.load(); });
  watcher->leave = true;

  EXPECT_TRUE(told);
  EXPECT_TRUE(eventually([&] { return watcher->heard + watcher->dropped == 2 * turns + 2; }));
  EXPECT_GT(watcher->dropped.load(), 10'000U);
}

}  // namespace
}  // namespace sallyport::poor
