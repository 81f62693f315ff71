#include "backends/etcd/poll_duty.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

namespace sallyport::backends::etcd {
namespace {

using namespace std::chrono_literals;
using backend_api::drive_ticket;

/// Much longer than any rest, and never waited for in full.
constexpr auto plenty = 10s;

bool comes(std::future<void>& turn, std::chrono::nanoseconds within = plenty) {
  return turn.wait_for(within) == std::future_status::ready;
}

class EtcdPollDuty : public testing::Test {
 protected:
  /// The own thread asks for its turn.
  std::future<void> own_turn() {
    return std::async(std::launch::async, [this] { duty_.await_turn(); });
  }
  poll_duty duty_;
  drive_ticket first_;
  drive_ticket second_;
};

TEST_F(EtcdPollDuty, TheOwnThreadPollsWhenNobodyElseDoes) {
  auto turn = own_turn();
  EXPECT_TRUE(comes(turn));
  EXPECT_FALSE(duty_.begin(first_)) << "one at a time";
}

TEST_F(EtcdPollDuty, ACallerThatComesFirstPollsItself) {
  ASSERT_TRUE(duty_.begin(first_));
  EXPECT_FALSE(duty_.begin(second_)) << "one at a time";
  auto turn = own_turn();
  EXPECT_FALSE(comes(turn, 4 * poll_duty::rest));
  duty_.close();
  EXPECT_TRUE(comes(turn));
}

TEST_F(EtcdPollDuty, ACallerThatWasServedAloneFindsThePlaceFreeWhenItComesAgain) {
  auto turn = own_turn();
  ASSERT_TRUE(comes(turn));
  ASSERT_FALSE(duty_.begin(first_));
  first_.finish();
  duty_.end_turn();
  // It has not woken up yet; whoever polls next must not be the own thread, whichever comes first.
  auto next = own_turn();
  duty_.end(false);
  EXPECT_TRUE(duty_.begin(second_));
  duty_.end(true);
  EXPECT_TRUE(comes(next)) << "after a rest";
}

TEST_F(EtcdPollDuty, TheSameIfItWakesUpFirst) {
  auto turn = own_turn();
  ASSERT_TRUE(comes(turn));
  ASSERT_FALSE(duty_.begin(first_));
  first_.finish();
  duty_.end(false);
  duty_.end_turn();
  EXPECT_TRUE(duty_.begin(second_));
  duty_.end(true);
}

TEST_F(EtcdPollDuty, TheOwnThreadTakesOverForThoseWhoStillSleep) {
  ASSERT_TRUE(duty_.begin(first_));
  ASSERT_FALSE(duty_.begin(second_));
  auto turn = own_turn();
  // Long enough for it to have gone to sleep for long.
  EXPECT_FALSE(comes(turn, 4 * poll_duty::rest));
  duty_.end(true);
  EXPECT_TRUE(comes(turn));
}

TEST_F(EtcdPollDuty, TheOwnThreadTakesOverFromACallerThatGoes) {
  ASSERT_TRUE(duty_.begin(first_));
  auto turn = own_turn();
  EXPECT_FALSE(comes(turn, 4 * poll_duty::rest));
  duty_.end(true);
  EXPECT_TRUE(comes(turn));
}

TEST_F(EtcdPollDuty, CallersThatWereServedTogetherAreServedTogetherAgain) {
  auto turn = own_turn();
  ASSERT_TRUE(comes(turn));
  ASSERT_FALSE(duty_.begin(first_));
  ASSERT_FALSE(duty_.begin(second_));
  first_.finish();
  second_.finish();
  duty_.end(false);
  duty_.end(false);
  duty_.end_turn();
  auto next = own_turn();
  EXPECT_TRUE(comes(next)) << "it does not rest";
  EXPECT_FALSE(duty_.begin(first_));
}

TEST_F(EtcdPollDuty, AHurryEndsARest) {
  for (int round = 0; round < 100; ++round) {
    ASSERT_TRUE(duty_.begin(first_));
    duty_.end(true);
    const auto began = lease_clock::now();
    duty_.hurry();
    duty_.await_turn();
    duty_.end_turn();
    // One of many is enough: the machine may be busy.
    if (lease_clock::now() - began < poll_duty::rest) return;
  }
  FAIL() << "it rested every time";
}

}  // namespace
}  // namespace sallyport::backends::etcd
