#include "base/log.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sallyport::base {
namespace {

class Log : public testing::Test {
 protected:
  ~Log() override { set_log_sink({}); }

  void collect_lines() {
    set_log_sink([this](log_level level, std::string_view line) {
      lines_.emplace_back(level, std::string(line));
    });
  }

  std::vector<std::pair<log_level, std::string>> lines_;
};

TEST_F(Log, GivesEveryLevelToTheSink) {
  collect_lines();

  log(log_level::debug, "asked");
  log(log_level::error, "refused");

  const std::vector<std::pair<log_level, std::string>> expected{{log_level::debug, "asked"},
                                                                {log_level::error, "refused"}};
  EXPECT_EQ(lines_, expected);
}

TEST_F(Log, WritesWarningsToStderrWithoutASink) {
  testing::internal::CaptureStderr();

  log(log_level::warning, "the store is slow");

  EXPECT_EQ(testing::internal::GetCapturedStderr(), "sallyport: the store is slow\n");
}

TEST_F(Log, KeepsQuietBelowWarningsWithoutASink) {
  testing::internal::CaptureStderr();

  log(log_level::debug, "details");
  log(log_level::info, "news");

  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Log, ReturnsToStderrWhenTheSinkIsTakenAway) {
  collect_lines();
  set_log_sink({});
  testing::internal::CaptureStderr();

  log(log_level::error, "gone");

  EXPECT_EQ(testing::internal::GetCapturedStderr(), "sallyport: gone\n");
  EXPECT_TRUE(lines_.empty());
}

TEST_F(Log, WritesNoMoreThanTheView) {
  const std::string_view longer = "seen and unseen";
  testing::internal::CaptureStderr();

  log(log_level::warning, longer.substr(0, 4));

  EXPECT_EQ(testing::internal::GetCapturedStderr(), "sallyport: seen\n");
}

// A sink is called without the slot's mutex, so it may log or replace itself without a deadlock.
TEST_F(Log, LetsASinkReplaceItself) {
  int calls = 0;
  set_log_sink([&calls](log_level, std::string_view) {
    ++calls;
    set_log_sink([&calls](log_level, std::string_view) { calls += 10; });
  });

  log(log_level::info, "first");
  log(log_level::info, "second");

  EXPECT_EQ(calls, 11);
}

TEST_F(Log, IsSafeWhileTheSinkIsReplaced) {
  constexpr int lines_per_thread = 1'000;
  std::atomic<int> received{0};
  const auto count = [&received](log_level, std::string_view) { received.fetch_add(1); };
  set_log_sink(count);

  {
    const std::jthread writer{[] {
      for (int line = 0; line < lines_per_thread; ++line) log(log_level::info, "line");
    }};
    const std::jthread replacer{[&count] {
      for (int turn = 0; turn < lines_per_thread; ++turn) set_log_sink(count);
    }};
  }

  EXPECT_EQ(received.load(), lines_per_thread);
}

}  // namespace
}  // namespace sallyport::base
