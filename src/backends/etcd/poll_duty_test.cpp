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

struct EtcdPollDuty : testing::Test {
  /// The own thread asks for its turn.
  std::future<void> own_turn() {
    return std::async(std::launch::async, [this] { duty.await_turn(); });
  }
  poll_duty duty;
  drive_ticket first;
  drive_ticket second;
};

TEST_F(EtcdPollDuty, TheOwnThreadPollsWhenNobodyElseDoes) {
  auto turn = own_turn();
  EXPECT_TRUE(comes(turn));
  EXPECT_FALSE(duty.begin(first)) << "one at a time";
}

TEST_F(EtcdPollDuty, ACallerThatComesFirstPollsItself) {
  ASSERT_TRUE(duty.begin(first));
  EXPECT_FALSE(duty.begin(second)) << "one at a time";
  auto turn = own_turn();
  EXPECT_FALSE(comes(turn, 4 * poll_duty::rest));
  duty.close();
  EXPECT_TRUE(comes(turn));
}

TEST_F(EtcdPollDuty, ACallerThatWasServedAloneFindsThePlaceFreeWhenItComesAgain) {
  auto turn = own_turn();
  ASSERT_TRUE(comes(turn));
  ASSERT_FALSE(duty.begin(first));
  first.finish();
  duty.end_turn();
  // It has not woken up yet; whoever polls next must not be the own thread, whichever comes first.
  auto next = own_turn();
  duty.end(false);
  EXPECT_TRUE(duty.begin(second));
  duty.end(true);
  EXPECT_TRUE(comes(next)) << "after a rest";
}

TEST_F(EtcdPollDuty, TheSameIfItWakesUpFirst) {
  auto turn = own_turn();
  ASSERT_TRUE(comes(turn));
  ASSERT_FALSE(duty.begin(first));
  first.finish();
  duty.end(false);
  duty.end_turn();
  EXPECT_TRUE(duty.begin(second));
  duty.end(true);
}

TEST_F(EtcdPollDuty, TheOwnThreadTakesOverForThoseWhoStillSleep) {
  ASSERT_TRUE(duty.begin(first));
  ASSERT_FALSE(duty.begin(second));
  auto turn = own_turn();
  // Long enough for it to have gone to sleep for long.
  EXPECT_FALSE(comes(turn, 4 * poll_duty::rest));
  duty.end(true);
  EXPECT_TRUE(comes(turn));
}

TEST_F(EtcdPollDuty, TheOwnThreadTakesOverFromACallerThatGoes) {
  ASSERT_TRUE(duty.begin(first));
  auto turn = own_turn();
  EXPECT_FALSE(comes(turn, 4 * poll_duty::rest));
  duty.end(true);
  EXPECT_TRUE(comes(turn));
}

TEST_F(EtcdPollDuty, CallersThatWereServedTogetherAreServedTogetherAgain) {
  auto turn = own_turn();
  ASSERT_TRUE(comes(turn));
  ASSERT_FALSE(duty.begin(first));
  ASSERT_FALSE(duty.begin(second));
  first.finish();
  second.finish();
  duty.end(false);
  duty.end(false);
  duty.end_turn();
  auto next = own_turn();
  EXPECT_TRUE(comes(next)) << "it does not rest";
  EXPECT_FALSE(duty.begin(first));
}

TEST_F(EtcdPollDuty, AHurryEndsARest) {
  for (int round = 0; round < 100; ++round) {
    ASSERT_TRUE(duty.begin(first));
    duty.end(true);
    const auto began = lease_clock::now();
    duty.hurry();
    duty.await_turn();
    duty.end_turn();
    // One of many is enough: the machine may be busy.
    if (lease_clock::now() - began < poll_duty::rest) return;
  }
  FAIL() << "it rested every time";
}

}  // namespace
}  // namespace sallyport::backends::etcd
