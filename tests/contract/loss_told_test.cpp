#include "tests/contract/kit/contract_test.hpp"

#include <atomic>
#include <csignal>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <poll.h>
#include <pthread.h>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

// Promise 5: a lease that can no longer be trusted says so, at its deadline at the latest, and for
// ever.
namespace sallyport::contract {
namespace {

class LossTold : public contract_test {};

/// Keeps one thread from running, wherever it is: inside of a signal handler. One at a time.
class held_up_thread {
 public:
  explicit held_up_thread(pthread_t which) {
    let_go = false;
    inside = false;
    struct sigaction how {};
    how.sa_handler = [](int) {
      inside = true;
      while (!let_go) ::poll(nullptr, 0, 1);
      inside = false;
    };
    EXPECT_EQ(::sigaction(SIGUSR2, &how, &before_), 0);
    EXPECT_EQ(::pthread_kill(which, SIGUSR2), 0);
    EXPECT_TRUE(eventually([] { return inside.load(); }));
  }
  ~held_up_thread() {
    let_go = true;
    EXPECT_TRUE(eventually([] { return !inside.load(); }));
    ::sigaction(SIGUSR2, &before_, nullptr);
  }
  held_up_thread(const held_up_thread&) = delete;
  held_up_thread& operator=(const held_up_thread&) = delete;

 private:
  static inline std::atomic<bool> inside{false};
  static inline std::atomic<bool> let_go{false};
  struct sigaction before_ {};
};

TEST_F(LossTold, AFixedLeaseEndsAtItsDeadlineByItself) {
  mutex lock{open(), "door", ending()};
  const auto before = lease_clock::now();

  const auto held = lock.acquire();
  EXPECT_TRUE(held.valid());
  EXPECT_EQ(held.state(), lease_state::held);
  EXPECT_LE(held.deadline(), lease_clock::now() + held.length());
  EXPECT_GT(held.deadline(), before);
  wait_until(held.deadline());

  EXPECT_FALSE(held.valid());
  EXPECT_TRUE(becomes_lost(held));
  EXPECT_EQ(error_of([&] { held.ensure_valid(); }), errc::lease_lost);
}

TEST_F(LossTold, TheDeadlineIsCountedFromBeforeTheRequestLeftLessAMargin) {
  mutex lock{open(), "door", ending()};

  const auto before = lease_clock::now();
  const auto held = lock.acquire();
  const auto after = lease_clock::now();

  // The request left between the two; a hundredth is the default drift, and expiry may be coarse.
  const auto least_margin = held.length() / 100;
  EXPECT_LE(held.deadline(), after + held.length() - least_margin);
  EXPECT_GE(held.deadline(), before + held.length() / 2);
}

TEST_F(LossTold, MoreDriftMakesADeadlineEarlier) {
  client_options careful;
  careful.clock_drift = 0.25;
  mutex lock{open("careful", careful), "door", ending()};

  const auto held = lock.acquire();

  EXPECT_LE(held.deadline(), lease_clock::now() + held.length() * 3 / 4);
}

TEST_F(LossTold, TheStopTokenFiresWhenTheLeaseLapses) {
  mutex lock{open(), "door", ending()};
  const auto held = lock.acquire();
  const std::stop_token gone = held.lost();
  std::atomic<bool> was_valid{true};
  signal_flag called;
  const std::stop_callback callback(gone, [&] {
    was_valid = held.valid();
    called.raise();
  });

  EXPECT_FALSE(gone.stop_requested());
  EXPECT_TRUE(called.wait());

  EXPECT_FALSE(was_valid);
  EXPECT_TRUE(gone.stop_requested());
  EXPECT_TRUE(held.lost().stop_requested());
}

TEST_F(LossTold, ATokenThatIsAskedForAfterTheLossHasFired) {
  mutex lock{open(), "door", ending()};
  const auto held = lock.acquire();

  ASSERT_TRUE(becomes_lost(held));

  EXPECT_TRUE(eventually([&] { return held.lost().stop_requested(); }));
}

/// The thread that waits may be the one that reads what the store answers to the client's renewals
/// (docs/guarantees.md, 5). Without it the lease may be lost; then that is known in time.
TEST_F(LossTold, AWaitingThreadThatDoesNotRunKeepsNoLossFromBeingTold) {
  mutex gate{open("holder"), "gate", lasting()};
  const auto closed = gate.acquire();
  const auto client = open("held up");
  mutex door{client, "door", {.lease_length = 2 * short_lease()}};
  const auto held = door.acquire();
  signal_flag gone;
  const std::stop_callback told{held.lost(), [&] { gone.raise(); }};
  std::stop_source enough;
  std::atomic<pthread_t> waiter{};
  background waiting([&] {
    waiter = ::pthread_self();
    mutex wanted{client, "gate", lasting()};
    return wanted.acquire(enough.get_token()).has_value();
  });
  ASSERT_TRUE(waiters_become(open("watching"), "gate", 1));

  bool valid = false;
  bool known = false;
  {
    const held_up_thread stands_still{waiter.load()};
    wait_until(lease_clock::now() + held.length() * 3 / 2);
    valid = held.valid();
    known = valid || eventually([&] { return gone.raised(); }, slack);
  }
  enough.request_stop();

  RecordProperty("lease", valid ? "renewed" : "lost");
  EXPECT_TRUE(known) << "lost, and nobody was told";
  EXPECT_FALSE(waiting.get());
}

TEST_F(LossTold, AReleasedLeaseIsNotLost) {
  mutex lock{open(), "door", ending()};
  auto held = lock.acquire();
  const auto gone = held.lost();

  EXPECT_EQ(held.release(), release_result::released);
  wait_until(held.deadline() + short_lease() / 2);

  EXPECT_EQ(held.state(), lease_state::released);
  EXPECT_FALSE(held.valid());
  EXPECT_FALSE(gone.stop_requested());
}

TEST_F(LossTold, ABrokenHolderIsTold) {
  const auto admin = open("admin");
  mutex lock{open("holder"), "door", {.lease_length = 2 * short_lease(), .local_turns = 1}};
  const auto held = lock.acquire();
  const auto gone = held.lost();

  admin.break_lock("door", observed_token(admin, "door"), break_style::safe);

  EXPECT_TRUE(eventually([&] { return gone.stop_requested(); }));
  EXPECT_FALSE(held.valid());
  EXPECT_EQ(held.state(), lease_state::lost);
}

TEST_F(LossTold, ALostLeaseNeverBecomesValidAgain) {
  const auto admin = open("admin");
  const auto length = 2 * short_lease();
  mutex lock{open("holder"), "door", {.lease_length = length, .local_turns = 1}};
  auto held = lock.acquire();
  admin.break_lock("door", observed_token(admin, "door"), break_style::at_once);
  ASSERT_TRUE(becomes_lost(held));

  // Several renewals would have been confirmed in this time.
  const auto until = lease_clock::now() + length;
  bool revived = false;
  while (lease_clock::now() < until) {
    revived = revived || held.valid() || held.state() != lease_state::lost;
    wait_until(lease_clock::now() + 10ms);
  }

  EXPECT_FALSE(revived);
  EXPECT_EQ(held.release(), release_result::already_lost);
  EXPECT_EQ(held.state(), lease_state::lost);
  EXPECT_FALSE(held.valid());
}

TEST_F(LossTold, ALateReleaseSaysThatTheLeaseWasLost) {
  mutex lock{open(), "door", ending()};
  auto held = lock.acquire();
  ASSERT_TRUE(becomes_lost(held));

  EXPECT_EQ(held.release(), release_result::already_lost);
  EXPECT_EQ(held.release(), release_result::already_lost);
}

TEST_F(LossTold, ABlockedCallbackDelaysNoRenewalOfOtherLeases) {
  const auto client = open();
  const auto length = 3 * short_lease();
  mutex ends{client, "ends", ending()};
  mutex lasts{client, "lasts", {.lease_length = length}};
  const auto renewed = lasts.acquire();
  const auto lapsing = ends.acquire();
  signal_flag inside;
  signal_flag leave;
  const std::stop_callback blocked(lapsing.lost(), [&] {
    inside.raise();
    leave.wait();
  });
  ASSERT_TRUE(inside.wait());

  const auto deadline = renewed.deadline();
  wait_until(deadline);
  const bool survived = renewed.valid();
  leave.raise();

  EXPECT_TRUE(survived);
  EXPECT_GT(renewed.deadline(), deadline);
}

TEST_F(LossTold, ABlockedObserverHoldsUpNoLoss) {
  struct blocked final : observer {
    void acquired(const lock_event&) override {
      inside.raise();
      leave.wait();
    }
    signal_flag inside;
    signal_flag leave;
  };
  const auto watcher = std::make_shared<blocked>();
  client_options options;
  options.watcher = watcher;
  const auto client = open("watched", options);
  constexpr int leases = 8;
  std::list<mutex> locks;
  std::vector<lease> held;
  std::vector<std::stop_token> gone;
  std::list<std::stop_callback<std::function<void()>>> callbacks;
  std::atomic<int> called{0};
  for (int i = 0; i < leases; ++i) {
    locks.emplace_back(client, "door" + std::to_string(i), ending());
    held.push_back(locks.back().acquire());
    gone.push_back(held.back().lost());
    callbacks.emplace_back(gone.back(), [&] { ++called; });
  }
  ASSERT_TRUE(watcher->inside.wait());

  const bool fired = eventually([&] { return called == leases; });
  watcher->leave.raise();

  EXPECT_TRUE(fired);
  for (int i = 0; i < leases; ++i) {
    EXPECT_TRUE(gone[static_cast<std::size_t>(i)].stop_requested());
    EXPECT_FALSE(held[static_cast<std::size_t>(i)].valid());
  }
}

TEST_F(LossTold, CallbacksDoNotRunOnTheThreadOfTheUser) {
  mutex lock{open(), "door", ending()};
  const auto held = lock.acquire();
  std::thread::id where;
  signal_flag called;
  const std::stop_callback callback(held.lost(), [&] {
    where = std::this_thread::get_id();
    called.raise();
  });

  ASSERT_TRUE(called.wait());

  EXPECT_NE(where, std::this_thread::get_id());
}

TEST_F(LossTold, TheDestructorOfALostLeaseIsQuiet) {
  mutex lock{open(), "door", ending()};
  {
    const auto held = lock.acquire();
    ASSERT_TRUE(becomes_lost(held));
  }
  EXPECT_TRUE(lock.try_acquire_for(patience));
}

TEST_F(LossTold, ALostPermitIsTold) {
  const auto client = open();
  if (!claims().semaphores) {
    EXPECT_EQ(error_of([&] { semaphore{client, "pool", 2}; }), errc::not_supported);
    return;
  }
  semaphore pool{client, "pool", 2, ending()};
  const auto permit = pool.acquire();
  const auto gone = permit.lost();

  EXPECT_TRUE(eventually([&] { return gone.stop_requested(); }));
  EXPECT_FALSE(permit.valid());
}

TEST_F(LossTold, LossUnderAStdGuardIsTold) {
  mutex lock{open(), "door", ending()};
  const std::scoped_lock guard{lock};
  const auto view = lock.current();
  ASSERT_TRUE(view);

  EXPECT_TRUE(view->valid());
  EXPECT_TRUE(eventually([&] { return view->lost().stop_requested(); }));

  EXPECT_FALSE(view->valid());
  ASSERT_TRUE(lock.current());
  EXPECT_FALSE(lock.current()->valid());
}

}  // namespace
}  // namespace sallyport::contract
