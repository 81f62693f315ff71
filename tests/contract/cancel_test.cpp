#include "tests/contract/kit/contract_test.hpp"

#include <array>
#include <stop_token>

// Promise 12: every wait takes a deadline and a stop token, and one deadline covers all steps.
namespace sallyport::contract {
namespace {

class Cancel : public contract_test {
 protected:
  const client holder_ = open("holder");
  mutex gate_{holder_, "door", lasting()};
  const lease held_ = gate_.acquire();
  const client asker_ = open("asker");
  mutex wanted_{asker_, "door", lasting()};
};

TEST_F(Cancel, AStopRequestEndsAWait) {
  std::stop_source stop;
  background waiter([&] { return wanted_.acquire(stop.get_token()).has_value(); });
  ASSERT_TRUE(waiters_become(holder_, "door", 1));

  const auto asked = lease_clock::now();
  stop.request_stop();

  EXPECT_FALSE(waiter.get());
  EXPECT_LT(lease_clock::now() - asked, slack);
}

TEST_F(Cancel, AStopThatWasRequestedBeforeTheCallEndsItToo) {
  std::stop_source stop;
  stop.request_stop();

  EXPECT_FALSE(wanted_.acquire(stop.get_token()));
  EXPECT_FALSE(wanted_.try_acquire_for(patience, stop.get_token()));
}

TEST_F(Cancel, IsNoError) {
  std::stop_source stop;
  background waiter([&] {
    std::error_code error = make_error_code(errc::unavailable);
    const auto got = wanted_.acquire(stop.get_token(), error);
    return !got && !error;
  });
  ASSERT_TRUE(waiters_become(holder_, "door", 1));

  stop.request_stop();

  EXPECT_TRUE(waiter.get());
}

TEST_F(Cancel, EndsOnlyTheWaitThatWasCancelled) {
  std::stop_source stop;
  mutex other{open("other"), "door", lasting()};
  background cancelled([&] { return wanted_.acquire(stop.get_token()).has_value(); });
  ASSERT_TRUE(waiters_become(holder_, "door", 1));
  std::stop_source never;
  background staying([&] { return other.acquire(never.get_token()).has_value(); });
  ASSERT_TRUE(waiters_become(holder_, "door", 2));

  stop.request_stop();
  EXPECT_FALSE(cancelled.get());

  EXPECT_FALSE(staying.done());
  EXPECT_TRUE(waiters_become(holder_, "door", 1));
  never.request_stop();
  EXPECT_FALSE(staying.get());
}

TEST_F(Cancel, ThreadsThatWaitBehindACancelledOneGoOnWaiting) {
  std::stop_source stop;
  background first([&] { return wanted_.acquire(stop.get_token()).has_value(); });
  ASSERT_TRUE(waiters_become(holder_, "door", 1));
  std::stop_source never;
  background second([&] { return wanted_.acquire(never.get_token()).has_value(); });

  stop.request_stop();
  EXPECT_FALSE(first.get());

  EXPECT_TRUE(waiters_become(holder_, "door", 1));
  EXPECT_FALSE(second.done());
  never.request_stop();
  EXPECT_FALSE(second.get());
  EXPECT_TRUE(waiters_become(holder_, "door", 0));
}

TEST_F(Cancel, ADeadlineIsKept) {
  const auto began = lease_clock::now();

  EXPECT_FALSE(wanted_.try_acquire_for(150ms));

  const auto took = lease_clock::now() - began;
  EXPECT_GE(took, 150ms);
  EXPECT_LT(took, 150ms + slack);
}

TEST_F(Cancel, DeadlinesOfOtherClocksAreKept) {
  const auto began = lease_clock::now();

  EXPECT_FALSE(wanted_.try_acquire_until(began + 60ms));
  EXPECT_GE(lease_clock::now(), began + 60ms);
  EXPECT_FALSE(wanted_.try_acquire_until(std::chrono::steady_clock::time_point{}));
  EXPECT_FALSE(wanted_.try_acquire_until(std::chrono::system_clock::time_point{}));

  EXPECT_LT(lease_clock::now() - began, 60ms + slack);
}

TEST_F(Cancel, WaitsOfNoTimeAndOfNegativeTimeAreTries) {
  EXPECT_FALSE(wanted_.try_acquire_for(0ms));
  EXPECT_FALSE(wanted_.try_acquire_for(-1h));

  EXPECT_EQ(waiter_count(holder_, "door"), 0U);
  mutex free{asker_, "window", lasting()};
  EXPECT_TRUE(free.try_acquire_for(0ms));
}

TEST_F(Cancel, EndlessWaitsDoNotOverflow) {
  std::stop_source stop;
  background waiter([&] {
    return wanted_.try_acquire_for(std::chrono::hours::max(), stop.get_token()).has_value();
  });
  ASSERT_TRUE(waiters_become(holder_, "door", 1));

  EXPECT_FALSE(waiter.done());
  stop.request_stop();

  EXPECT_FALSE(waiter.get());
}

TEST_F(Cancel, LockAllHasOneDeadlineForAllItsSteps) {
  const auto first_lapse = 800ms;
  const auto deadline = 1000ms;
  if (first_lapse < short_lease()) {
    EXPECT_GT(short_lease(),
              first_lapse);  // leases of this store are too long for the first step to end in time
    return;
  }
  mutex ends{holder_, "a", {.lease_length = first_lapse, .renew = renewal::never}};
  const auto lapsing = ends.acquire();
  mutex a{asker_, "a", lasting()};

  const auto began = lease_clock::now();
  const auto got = try_lock_all_for(deadline, a, wanted_);
  const auto took = lease_clock::now() - began;

  EXPECT_FALSE(got);
  EXPECT_GE(took, deadline);
  EXPECT_LT(took, first_lapse + deadline - 100ms) << "each step had a deadline of its own";
}

TEST_F(Cancel, LockAllStopsOnRequest) {
  mutex a{asker_, "a", lasting()};
  std::stop_source stop;
  background waiter([&] {
    const std::array<mutex*, 2> both{&a, &wanted_};
    return lock_all_until(both, lease_clock::time_point::max(), stop.get_token()).has_value();
  });
  ASSERT_TRUE(waiters_become(holder_, "door", 1));

  stop.request_stop();

  EXPECT_FALSE(waiter.get());
  EXPECT_TRUE(becomes_free(holder_, "a"));
}

TEST_F(Cancel, OfAReaderAndOfAPermit) {
  std::stop_source stop;
  if (claims().shared_locks) {
    shared_mutex page{holder_, "page", lasting()};
    const auto writer = page.acquire();
    background reader([&] { return page.acquire_shared(stop.get_token()).has_value(); });
    ASSERT_TRUE(waiters_become(holder_, "page", 1));
    stop.request_stop();
    EXPECT_FALSE(reader.get());
    EXPECT_TRUE(waiters_become(holder_, "page", 0));
  }
  if (claims().semaphores) {
    semaphore pool{holder_, "pool", 1, lasting()};
    const auto permit = pool.acquire();
    EXPECT_FALSE(pool.try_acquire_for(30ms));
    EXPECT_TRUE(waiters_become(holder_, "pool", 0));
  }
  EXPECT_TRUE(held_.valid());
}

}  // namespace
}  // namespace sallyport::contract
