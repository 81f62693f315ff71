#include "tests/client/odd_store.hpp"
#include "tests/contract/kit/waiting.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

// What observers of elections and of the store hear when readings fail, stay away or come late.
namespace sallyport::odd {
namespace {

using namespace std::chrono_literals;
using contract::eventually;

/// Who leads, as an observation told it; "?": unknown.
class leaders {
 public:
  [[nodiscard]] observation observe(const election& which) {
    return which.observe(
        [this](const std::optional<leader_info>& now) { add(now ? now->value : "nobody"); },
        [this](const lock_error&) { add("?"); });
  }
  [[nodiscard]] std::vector<std::string> told() const {
    const std::lock_guard guard{mutex_};
    return told_;
  }
  [[nodiscard]] bool become(const std::vector<std::string>& wanted) const {
    return eventually([&] { return told() == wanted; });
  }

 private:
  void add(std::string word) {
    const std::lock_guard guard{mutex_};
    told_.push_back(std::move(word));
  }
  mutable std::mutex mutex_;
  std::vector<std::string> told_;
};

class Observing : public ::testing::Test {
 protected:
  Observing() { reset(); }
  [[nodiscard]] static client open(client_options options = {}) {
    options.heartbeat = 50ms;
    return client::open("odd:observing", std::move(options));
  }
};

TEST_F(Observing, AReadingThatFoundNoMemoryIsMadeAgain) {
  leaders heard;
  const client store = open();
  election lead{store, "lead"};
  present().readings_without_memory = 3;

  const auto observing = heard.observe(lead);

  EXPECT_TRUE(eventually([&] { return !heard.told().empty() && heard.told().back() == "nobody"; }));
}

TEST_F(Observing, AnOverdueReadingIsMadeAgainAndItsLateAnswerIsIgnored) {
  leaders heard;
  const client store = open({.request_timeout = 2s});
  election lead{store, "lead"};

  present().keeps = true;
  const auto observing = heard.observe(lead);
  ASSERT_TRUE(heard.become({"?"}));
  present().keeps = false;
  const client other = open();
  election theirs{other, "lead"};
  const auto leading = theirs.campaign("them");
  const bool known = heard.become({"?", "them"});
  std::vector<std::function<void()>> late;
  while (present().kept() > 0) late.push_back(present().take());
  ASSERT_FALSE(late.empty());
  present().keeps = true;
  ASSERT_TRUE(eventually([] { return present().kept() > 0; }));
  const auto before = heard.told();
  // Answers of long ago: they must not end the reading that is under way, which would begin anew.
  for (const auto& each : late) each();
  const std::size_t under_way = present().kept();
  contract::wait_until(lease_clock::now() + 200ms);

  EXPECT_TRUE(known);
  EXPECT_EQ(present().kept(), under_way);
  EXPECT_EQ(heard.told(), before);
  present().keeps = false;
  present().answer_all();
}

TEST_F(Observing, WhatAStoreCanNotDoIsNoSignOfLife) {
  const auto counted = std::make_shared<metrics>();
  client_options options;
  options.watcher = counted;
  const client store = open(options);
  mutex lock{store, "door"};
  std::error_code error;
  present().away = true;
  present().lists = false;

  EXPECT_FALSE(lock.try_acquire(error));
  ASSERT_TRUE(eventually([&] { return counted->read().store_away == 1; }));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(static_cast<void>(store.list()), lock_error);
    EXPECT_FALSE(lock.try_acquire(error));
  }
  present().away = false;
  EXPECT_TRUE(lock.try_acquire(error));

  EXPECT_TRUE(eventually([&] { return counted->read().store_back == 1; }));
  EXPECT_EQ(counted->read().store_away, 1U);
}

TEST_F(Observing, ARenewalThatFoundNoMemoryIsNoOutage) {
  const auto counted = std::make_shared<metrics>();
  client_options options;
  options.watcher = counted;
  const client store = open(options);
  mutex lock{store, "door", {.lease_length = 3s}};
  present().renewals_without_memory = 1;

  const auto held = lock.acquire();

  EXPECT_TRUE(eventually([&] { return counted->read().renewed > 0; }));
  EXPECT_EQ(present().renewals_without_memory, 0);
  EXPECT_EQ(counted->read().store_away, 0U);
}

}  // namespace
}  // namespace sallyport::odd
