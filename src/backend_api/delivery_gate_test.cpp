#include "backend_api/delivery_gate.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <latch>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace sallyport::backend_api {
namespace {

TEST(DeliveryGate, LetsCallsPassUntilItIsClosed) {
  delivery_gate gate;
  {
    const delivery_gate::pass outer(gate);
    const delivery_gate::pass inner(gate);
    EXPECT_TRUE(outer.open());
    EXPECT_TRUE(inner.open());
  }

  gate.close();

  const delivery_gate::pass late(gate);
  EXPECT_FALSE(late.open());
}

TEST(DeliveryGate, TellsWhoClosedItFirst) {
  delivery_gate gate;

  EXPECT_TRUE(gate.close());
  EXPECT_FALSE(gate.close());
}

TEST(DeliveryGate, DoesNotWaitForTheThreadThatCloses) {
  delivery_gate gate;
  const delivery_gate::pass outer(gate);
  const delivery_gate::pass inner(gate);

  EXPECT_TRUE(gate.close());
  EXPECT_FALSE(gate.close());
}

TEST(DeliveryGate, WaitsForOtherThreadsInside) {
  delivery_gate gate;
  std::latch inside(1);
  bool left = false;  // guarded by the gate: the thread sanitizer sees it if close() does not wait
  std::jthread other([&] {
    const delivery_gate::pass pass(gate);
    inside.count_down();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    left = true;
  });
  inside.wait();

  gate.close();

  EXPECT_TRUE(left);
}

TEST(DeliveryGate, LetsTwoThreadsCloseFromInside) {
  delivery_gate gate;
  std::barrier both_inside(2);
  const auto close_from_inside = [&] {
    const delivery_gate::pass pass(gate);
    both_inside.arrive_and_wait();
    gate.close();
  };

  std::jthread one(close_from_inside);
  std::jthread other(close_from_inside);
}

TEST(DeliveryGate, DoesNotTakeAnotherGatesPassForItsOwn) {
  delivery_gate mine;
  delivery_gate others;
  std::optional<delivery_gate::pass> stay;
  stay.emplace(others);

  mine.close();

  const delivery_gate::pass still(others);
  EXPECT_TRUE(still.open());
}

TEST(DeliveryGate, LetsAListenerDieRightAfterClose) {
  for (int round = 0; round < 200; ++round) {
    const auto gate = std::make_shared<delivery_gate>();
    auto listener = std::make_unique<std::atomic<int>>(0);
    std::barrier start(3);
    const auto call = [&, gate] {
      start.arrive_and_wait();
      for (int i = 0; i < 20; ++i) {
        const delivery_gate::pass pass(*gate);
        if (!pass.open()) return;
        ++*listener;
      }
    };
    std::jthread one(call);
    std::jthread other(call);
    start.arrive_and_wait();

    gate->close();
    listener.reset();
  }
}

}  // namespace
}  // namespace sallyport::backend_api
