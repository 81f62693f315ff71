#include "runtime/loss_notifier.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <list>
#include <memory>
#include <semaphore>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace sallyport::runtime {
namespace {

using namespace std::chrono_literals;

constexpr auto long_enough = 20s;  // only reached when the thread does not come at all

using callback = std::stop_callback<std::function<void()>>;

std::shared_ptr<lease_record> turn_with_token() {
  auto turn = std::make_shared<lease_record>(
      std::make_shared<const lock_spec>(lock_spec{.name = "door", .times = {}}), fencing_token{1},
      1U, core::time_point{});
  turn->gone = std::stop_source{};
  return turn;
}

lost_turns only(std::shared_ptr<lease_record> turn) {
  lost_turns one;
  one.push(std::move(turn));
  return one;
}

TEST(LostTurns, KeepTheirOrderAcrossPushAppendAndPop) {
  std::vector<std::shared_ptr<lease_record>> turns;
  for (int i = 0; i < 4; ++i) turns.push_back(turn_with_token());
  lost_turns all;
  lost_turns more;

  all.append(lost_turns{});
  all.push(turns[0]);
  more.push(turns[1]);
  more.push(turns[2]);
  all.append(std::move(more));
  EXPECT_EQ(all.pop(), turns[0]);
  all.push(turns[3]);

  for (int i = 1; i < 4; ++i) EXPECT_EQ(all.pop(), turns[static_cast<std::size_t>(i)]);
  EXPECT_TRUE(all.empty());
  EXPECT_EQ(all.pop(), nullptr);
}

TEST(LostTurns, OfAnyNumberAreForgottenWithoutRecursion) {
  lost_turns all;
  for (int i = 0; i < 200'000; ++i) all.push(turn_with_token());

  EXPECT_FALSE(all.empty());
}

TEST(LossNotifier, FiresInOrderOnOneOtherThread) {
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  std::list<callback> callbacks;
  std::vector<std::stop_token> tokens;
  loss_notifier losses;

  for (int i = 0; i < 100; ++i) {
    const auto turn = turn_with_token();
    tokens.push_back(turn->gone.get_token());
    callbacks.emplace_back(tokens.back(), [&, i] {
      order.push_back(i);
      threads.push_back(std::this_thread::get_id());
    });
    ASSERT_TRUE(losses.tell(only(turn)));
  }
  losses.stop();

  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  for (const auto id : threads) EXPECT_EQ(id, threads.front());
  EXPECT_NE(threads.front(), std::this_thread::get_id());
}

TEST(LossNotifier, DropsNothingHoweverManyWait) {
  constexpr int many = 100'000;
  std::latch gate{1};
  std::vector<std::stop_token> tokens;
  const auto first = turn_with_token();
  const callback blocked{first->gone.get_token(), [&] { gate.wait(); }};
  loss_notifier losses;
  ASSERT_TRUE(losses.tell(only(first)));

  for (int i = 0; i < many; ++i) {
    auto turn = turn_with_token();
    tokens.push_back(turn->gone.get_token());
    ASSERT_TRUE(losses.tell(only(std::move(turn))));
  }
  gate.count_down();
  losses.stop();

  int fired = 0;
  for (const auto& token : tokens) fired += token.stop_requested() ? 1 : 0;
  EXPECT_EQ(fired, many);
}

TEST(LossNotifier, MayBeDestroyedInsideItsOwnCallbackAndFiresTheRest) {
  auto losses = std::make_unique<loss_notifier>();
  std::latch ready{1};
  std::binary_semaphore fired{0};
  const auto first = turn_with_token();
  const auto second = turn_with_token();
  const callback ends{first->gone.get_token(), [&] {
                        ready.wait();
                        losses.reset();
                      }};
  const callback last{second->gone.get_token(), [&] { fired.release(); }};

  ASSERT_TRUE(losses->tell(only(first)));
  ASSERT_TRUE(losses->tell(only(second)));
  ready.count_down();

  EXPECT_TRUE(fired.try_acquire_for(long_enough));
  EXPECT_EQ(losses, nullptr);
}

}  // namespace
}  // namespace sallyport::runtime
