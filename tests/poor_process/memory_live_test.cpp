#include "tests/poor_process/shortage.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <utility>

// Memory runs out at the k-th allocation of a call, for every k: once, or for as long as the call
// takes. Whatever the call says, nobody may find the lock taken afterwards.
namespace sallyport::poor {
namespace {

using namespace std::chrono_literals;

constexpr auto patience = 20s;           // only reached when something fails
constexpr int most_allocations = 1'000;  // of one call
constexpr const char* name = "a lock with a name that is too long for a small string";

struct try_outcome {
  std::optional<lease> got;
  std::error_code error;
};

struct scene {
  const char* title;
  /// Makes what the call needs; the call itself is what it returns.
  std::function<std::function<try_outcome()>(const client&)> prepare;
};

template <class Lock, class... Wishes>
std::function<std::function<try_outcome()>(const client&)> trying(Wishes... wishes) {
  return [=](const client& poor) -> std::function<try_outcome()> {
    auto lock = std::make_shared<Lock>(poor, name, wishes...);
    return [lock] {
      try_outcome outcome;
      outcome.got = lock->try_acquire(outcome.error);
      return outcome;
    };
  };
}

template <class Lock, class... Wishes>
std::function<std::function<try_outcome()>(const client&)> waiting(Wishes... wishes) {
  return [=](const client& poor) -> std::function<try_outcome()> {
    auto lock = std::make_shared<Lock>(poor, name, wishes...);
    return [lock] {
      try_outcome outcome;
      outcome.got = lock->try_acquire_for(patience, {}, outcome.error);
      return outcome;
    };
  };
}

const scene tries[] = {
    {"Mutex", trying<mutex>()},
    {"MutexWithOneTurn", trying<mutex>(lock_options{.local_turns = 1})},
    {"RecursiveMutex", trying<recursive_mutex>()},
    {"Writer", trying<shared_mutex>()},
    {"Permit", trying<semaphore>(2U)},
    {"MutexThatWouldWait", waiting<mutex>()},
    {"PermitThatWouldWait", waiting<semaphore>(2U)},
};

const scene waits[] = {
    {"Mutex", waiting<mutex>()},
    {"MutexWithOneTurn", waiting<mutex>(lock_options{.local_turns = 1})},
    {"RecursiveMutex", waiting<recursive_mutex>()},
};

/// A store of this test alone, and a client that sees what is left in it.
class NoMemory : public ::testing::TestWithParam<std::tuple<const char*, bool, bool>> {
 protected:
  NoMemory() {
    if (std::string(std::get<0>(GetParam())) == "local:") {
      folder_ = std::filesystem::temp_directory_path() / ("poor." + std::to_string(getpid()));
      std::filesystem::create_directories(folder_);
      address_ = "local:" + folder_.string();
    } else {
      address_ = "memory:poor";
    }
    rich_ = client::open(address_);
  }
  ~NoMemory() override {
    rich_.reset();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  [[nodiscard]] static bool for_good() { return std::get<1>(GetParam()); }
  [[nodiscard]] client open() const {
    client_options options;
    if (std::get<2>(GetParam())) options.watcher = std::make_shared<metrics>();
    return client::open(address_, std::move(options));
  }
  [[nodiscard]] const client& rich() const { return *rich_; }

  static void expect_an_answer(const try_outcome& outcome) {
    if (outcome.got) {
      EXPECT_FALSE(outcome.error);
      EXPECT_TRUE(outcome.got->valid());
    } else {
      EXPECT_EQ(outcome.error, errc::not_enough_memory) << outcome.error.message();
    }
  }

 private:
  std::filesystem::path folder_;
  std::string address_;
  std::optional<client> rich_;
};

TEST_P(NoMemory, IsAnErrorOfATryAndLeavesNothingBehind) {
  for (const scene& each : tries) {
    SCOPED_TRACE(each.title);
    bool enough = false;
    int errors = 0;
    for (int k = 0; k < most_allocations && !enough; ++k) {
      SCOPED_TRACE("allocation " + std::to_string(k));
      const client poor = open();
      const auto call = each.prepare(poor);
      try_outcome outcome;
      {
        const no_memory now{k, for_good()};
        outcome = call();
        enough = !now.struck();
      }
      expect_an_answer(outcome);
      if (!outcome.got) ++errors;
      if (outcome.got) {
        EXPECT_EQ(outcome.got->release(), release_result::released);
      }
      EXPECT_FALSE(rich().who(name));
      mutex next{rich(), name};
      ASSERT_TRUE(next.try_acquire());
      // Whoever failed for want of memory works again when there is some.
      outcome = call();
      EXPECT_TRUE(outcome.got) << outcome.error.message();
      if (HasFailure()) return;
    }
    EXPECT_TRUE(enough);
    EXPECT_GT(errors, 0);
  }
}

TEST_P(NoMemory, IsAnErrorOfAWaitAndLeavesNobodyInTheQueue) {
  for (const scene& each : waits) {
    SCOPED_TRACE(each.title);
    bool enough = false;
    for (int k = 0; k < most_allocations && !enough; ++k) {
      SCOPED_TRACE("allocation " + std::to_string(k));
      const client poor = open();
      const auto call = each.prepare(poor);
      mutex taken{rich(), name};
      auto held = taken.acquire();
      try_outcome outcome;
      std::atomic<bool> done{false};
      std::thread waiter([&] {
        const no_memory now{k, for_good()};
        outcome = call();
        enough = !now.struck();
        done = true;
      });
      const auto until = lease_clock::now() + patience;
      while (!done && rich().who(name)->waiters.empty() && lease_clock::now() < until) {
        std::this_thread::sleep_for(100us);
      }
      EXPECT_EQ(held.release(), release_result::released);
      waiter.join();
      expect_an_answer(outcome);
      if (outcome.got) {
        EXPECT_EQ(outcome.got->release(), release_result::released);
      }
      EXPECT_FALSE(rich().who(name));
      ASSERT_TRUE(taken.try_acquire());
      if (HasFailure()) return;
    }
    EXPECT_TRUE(enough);
  }
}

TEST_P(NoMemory, IsAnErrorOfAWaitBehindAHolderOfTheSameClient) {
  bool enough = false;
  for (int k = 0; k < most_allocations && !enough; ++k) {
    SCOPED_TRACE("allocation " + std::to_string(k));
    const client poor = open();
    mutex lock{poor, name};
    auto held = lock.acquire();
    try_outcome outcome;
    std::atomic<bool> done{false};
    std::thread waiter([&] {
      const no_memory now{k, for_good()};
      outcome.got = lock.try_acquire_for(200ms, {}, outcome.error);
      enough = !now.struck();
      done = true;
    });
    waiter.join();
    EXPECT_FALSE(outcome.got);
    EXPECT_TRUE(!outcome.error || outcome.error == errc::not_enough_memory);
    EXPECT_EQ(held.release(), release_result::released);
    mutex next{rich(), name};
    ASSERT_TRUE(next.try_acquire());
    if (HasFailure()) return;
  }
  EXPECT_TRUE(enough);
}

TEST_P(NoMemory, DoesNotKeepALockFromBeingGivenBack) {
  bool enough = false;
  for (int k = 0; k < most_allocations && !enough; ++k) {
    SCOPED_TRACE("allocation " + std::to_string(k));
    const client poor = open();
    mutex lock{poor, name};
    auto held = lock.acquire();
    {
      const no_memory now{k, for_good()};
      static_cast<void>(held.release());
      enough = !now.struck();
    }
    mutex next{rich(), name};
    ASSERT_TRUE(next.try_acquire_for(patience));
    if (HasFailure()) return;
  }
  EXPECT_TRUE(enough);
}

TEST_P(NoMemory, DoesNotKeepAReentryFromBeingGivenBack) {
  bool enough = false;
  for (int k = 0; k < most_allocations && !enough; ++k) {
    SCOPED_TRACE("allocation " + std::to_string(k));
    const client poor = open();
    recursive_mutex lock{poor, name};
    auto outer = lock.acquire();
    auto inner = lock.acquire();
    {
      const no_memory now{k, for_good()};
      EXPECT_EQ(inner.release(), release_result::released);
      EXPECT_EQ(inner.state(), lease_state::released);
      EXPECT_TRUE(outer.valid());
      static_cast<void>(outer.release());
      enough = !now.struck();
    }
    mutex next{rich(), name};
    ASSERT_TRUE(next.try_acquire_for(patience));
    if (HasFailure()) return;
  }
  EXPECT_TRUE(enough);
}

TEST_P(NoMemory, IsAnErrorOfAReentryWhichIsNotCounted) {
  bool enough = false;
  for (int k = 0; k < most_allocations && !enough; ++k) {
    SCOPED_TRACE("allocation " + std::to_string(k));
    const client poor = open();
    recursive_mutex lock{poor, name};
    auto outer = lock.acquire();
    try_outcome again;
    {
      const no_memory now{k, for_good()};
      again.got = lock.acquire(again.error);
      enough = !now.struck();
    }
    expect_an_answer(again);
    EXPECT_EQ(lock.depth(), again.got ? 2U : 1U);
    if (again.got) again.got->release();
    EXPECT_TRUE(outer.valid());
    EXPECT_EQ(outer.release(), release_result::released);
    EXPECT_FALSE(rich().who(name));
    if (HasFailure()) return;
  }
  EXPECT_TRUE(enough);
}

std::string title_of(const ::testing::TestParamInfo<std::tuple<const char*, bool, bool>>& each) {
  const auto& [store, for_good, observed] = each.param;
  const std::string address = store;
  return address.substr(0, address.size() - 1) + (for_good ? "ForGood" : "Once") +
         (observed ? "Observed" : "");
}

INSTANTIATE_TEST_SUITE_P(Stores, NoMemory,
                         ::testing::Combine(::testing::Values("memory:", "local:"),
                                            ::testing::Bool(), ::testing::Bool()),
                         title_of);

}  // namespace
}  // namespace sallyport::poor
