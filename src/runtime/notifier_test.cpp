#include "runtime/notifier.hpp"

#include "base/log.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
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

/// A notifier whose first news wait at a gate, so that the queue fills.
struct blocked_notifier {
  blocked_notifier() {
    told.tell([this] {
      inside.count_down();
      gate.wait();
    });
    inside.wait();
  }
  void fill() {
    for (std::size_t i = 0; i < notifier::max_backlog; ++i) told.tell_observer([this] { ++heard; });
  }

  std::latch inside{1};
  std::latch gate{1};  // outlives the thread that waits at it
  std::size_t heard = 0;
  std::vector<std::pair<std::size_t, std::uint64_t>> gaps;  // after how many events, how many
  notifier told{[this](std::uint64_t events) { gaps.emplace_back(heard, events); }};
};

TEST(Notifier, SaysInItsPlaceHowManyEventsItDroppedBeyondItsBound) {
  blocked_notifier slow;
  slow.fill();

  for (int i = 0; i < 100; ++i) slow.told.tell_observer([&] { ++slow.heard; });
  slow.gate.count_down();
  slow.told.flush();
  slow.told.tell_observer([&] { ++slow.heard; });
  slow.told.stop();

  ASSERT_EQ(slow.gaps.size(), 1U);
  EXPECT_EQ(slow.gaps[0], std::pair(notifier::max_backlog, std::uint64_t{100}));
  EXPECT_EQ(slow.heard, notifier::max_backlog + 1);
}

TEST(Notifier, SaysWhatWasDroppedAlsoWhenNothingComesAfterIt) {
  blocked_notifier slow;
  slow.fill();

  slow.told.tell_observer([&] { ++slow.heard; });
  slow.gate.count_down();
  slow.told.stop();

  ASSERT_EQ(slow.gaps.size(), 1U);
  EXPECT_EQ(slow.gaps[0], std::pair(notifier::max_backlog, std::uint64_t{1}));
}

TEST(Notifier, DoesNotCountNewsThatAreNoEvents) {
  blocked_notifier slow;
  slow.fill();

  for (int i = 0; i < 100; ++i) slow.told.tell([] {});
  slow.gate.count_down();
  slow.told.stop();

  EXPECT_TRUE(slow.gaps.empty());
}

TEST(Notifier, CountsAnEventThatCouldNotBeWrittenDown) {
  std::uint64_t missed = 0;
  notifier told{[&](std::uint64_t events) { missed += events; }};

  told.tell_observer({});
  told.stop();

  EXPECT_EQ(missed, 1U);
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
