#include "runtime/notifier.hpp"

#include "base/log.hpp"

#include <gtest/gtest.h>

#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace sallyport::runtime {
namespace {

TEST(Notifier, RunsNewsInOrderOnOneOtherThread) {
  notifier told;
  std::vector<int> order;
  std::vector<std::thread::id> threads;

  for (int i = 0; i < 100; ++i) {
    told.tell([&, i] {
      order.push_back(i);
      threads.push_back(std::this_thread::get_id());
    });
  }
  told.flush();

  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  for (const auto id : threads) EXPECT_EQ(id, threads.front());
  EXPECT_NE(threads.front(), std::this_thread::get_id());
}

TEST(Notifier, RunsWhatIsQueuedBeforeItStops) {
  int ran = 0;
  {
    notifier told;
    for (int i = 0; i < 10; ++i) told.tell([&] { ++ran; });
  }

  EXPECT_EQ(ran, 10);
}

TEST(Notifier, DropsAndCountsBeyondItsBound) {
  std::latch gate{1};  // outlives the thread that waits at it
  notifier told;
  told.tell([&] { gate.wait(); });

  for (std::size_t i = 0; i < notifier::max_backlog + 100; ++i) told.tell([] {});

  EXPECT_GE(told.dropped(), 99U);
  gate.count_down();
}

TEST(Notifier, SurvivesACallbackThatThrows) {
  std::string line;
  base::set_log_sink([&](base::log_level, std::string_view text) { line = text; });
  notifier told;
  bool ran = false;

  told.tell([] { throw std::runtime_error("boom"); });
  told.tell([&] { ran = true; });
  told.flush();
  base::set_log_sink({});

  EXPECT_TRUE(ran);
  EXPECT_NE(line.find("boom"), std::string::npos);
}

TEST(Notifier, MayBeDestroyedInsideItsOwnCallback) {
  auto told = std::make_unique<notifier>();
  std::latch gone{1};
  std::latch ready{1};

  told->tell([&] {
    ready.wait();
    told.reset();
    gone.count_down();
  });
  ready.count_down();
  gone.wait();

  EXPECT_EQ(told, nullptr);
}

}  // namespace
}  // namespace sallyport::runtime
