#include "backends/memory/memory_backend.hpp"

#include "backend_api/backend.hpp"
#include <sallyport/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::backends {
namespace {

using namespace std::chrono_literals;
using backend_api::acquire_answer;
using backend_api::break_mode;
using backend_api::granted;
using backend_api::holder_id;
using backend_api::leave_answer;
using backend_api::renew_answer;
using backend_api::renew_outcome;
using backend_api::renew_request;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

/// Writes down what it is told, in words; runs `on_event` after each.
class recorder : public backend_api::events {
 public:
  void acquire_answered(const holder_id& who, base::result<acquire_answer> answer) override {
    record(who, answer ? answer_names.at(answer->index()) : answer.error().code.message());
    if (answer && std::holds_alternative<granted>(*answer)) grant = std::get<granted>(*answer);
    if (!answer) failure = answer.error().code;
  }
  void renewals_answered(std::span<renew_outcome> outcomes) override {
    for (const renew_outcome& each : outcomes) {
      record(each.holder, each.answer ? renew_names.at(each.answer->index()) : "failed");
      if (!each.answer) failure = each.answer.error().code;
    }
  }
  void leave_answered(const holder_id& who, base::result<leave_answer> answer) override {
    record(who, !answer ? "failed" : *answer == leave_answer::left ? "left" : "not there");
    if (!answer) failure = answer.error().code;
  }
  void downgrade_answered(const holder_id& who, base::result<renew_answer> answer) override {
    record(who, answer ? "downgraded" : "failed");
    if (!answer) failure = answer.error().code;
  }
  void granted_notice(const holder_id& who, std::optional<granted> given) override {
    grant = given;
    record(who, "notice: granted");
  }
  void lost_notice(const holder_id& who) override { record(who, "notice: lost"); }
  void changed_notice(const lock_name& name) override {
    record({}, "notice: " + name.text() + " changed");
  }
  void reconnected() override { record({}, "reconnected"); }

  std::vector<std::string> told;
  std::optional<granted> grant;
  std::error_code failure;
  std::function<void()> on_event;

 private:
  void record(const holder_id& who, const std::string& what) {
    told.push_back(who == holder_id{} ? what : std::to_string(who.low) + " " + what);
    if (on_event) on_event();
  }

  static constexpr std::array<const char*, 3> answer_names{"granted", "waiting", "held"};
  static constexpr std::array<const char*, 3> renew_names{"renewed", "waiting", "gone"};
};

/// One client with its recorder.
struct client {
  explicit client(const std::string& uri)
      : store(memory_backend().open({uri, {"host", 42, "test"}, events}).value()) {}

  void acquire(std::uint64_t who, const lock_name& name, bool may_wait = true) {
    store->acquire({.name = name,
                    .holder = {1, who},
                    .lease_length = 30s,
                    .claim_window = 10s,
                    .ticket_length = 60s,
                    .may_wait = may_wait,
                    .value = {},
                    .answer_by = {}});
  }
  void renew(std::uint64_t who, const lock_name& name) {
    const renew_request request{
        .name = name, .holder = {1, who}, .lease_length = 30s, .answer_by = {}};
    store->renew({&request, 1});
  }
  void release(std::uint64_t who, const lock_name& name) {
    store->release({.name = name, .holder = {1, who}, .answer_by = {}});
  }
  std::optional<lock_info> who(const lock_name& name) {
    std::optional<lock_info> info;
    store->who(name, [&](auto answer) { info = std::move(answer).value(); });
    return info;
  }

  recorder events;
  std::unique_ptr<backend_api::backend> store;
};

TEST(MemoryBackend, ServesTheSchemeMemory) {
  EXPECT_THAT(memory_backend().schemes, ElementsAre("memory"));
}

TEST(MemoryBackend, RefusesAddressesItDoesNotUnderstand) {
  recorder events;
  for (const char* uri :
       {"memory", "redis:", "memory://x", "memory:a b", "memory:a?b=c", "memory:\n"}) {
    const auto opened = memory_backend().open({uri, {}, events});
    ASSERT_FALSE(opened.has_value()) << uri;
    EXPECT_EQ(opened.error().code, errc::bad_uri) << uri;
  }
  EXPECT_FALSE(memory_backend().open({"memory:" + std::string(256, 'x'), {}, events}).has_value());
}

TEST(MemoryBackend, AnswersInsideTheCall) {
  client one("memory:");

  one.acquire(1, "a");
  one.renew(1, "a");
  one.release(1, "a");

  EXPECT_THAT(one.events.told, ElementsAre("1 granted", "1 renewed", "1 left"));
}

TEST(MemoryBackend, AnswersABatchOfRenewals) {
  client one("memory:");
  one.acquire(1, "a");
  one.acquire(2, "b");
  one.acquire(3, "b");
  one.events.told.clear();
  const lock_name a = "a";
  const lock_name b = "b";
  const auto renewal = [](const lock_name& name, std::uint64_t who) {
    return renew_request{.name = name, .holder = {1, who}, .lease_length = 30s, .answer_by = {}};
  };
  const std::vector<renew_request> batch{renewal(a, 1), renewal(b, 2), renewal(b, 3),
                                         renewal(b, 4)};

  one.store->renew(batch);

  EXPECT_THAT(one.events.told, ElementsAre("1 renewed", "2 renewed", "3 waiting", "4 gone"));
}

TEST(MemoryBackend, KeepsPrivateStoresApart) {
  client one("memory:");
  client other("memory:");

  one.acquire(1, "a");
  other.acquire(2, "a");

  EXPECT_THAT(other.events.told, ElementsAre("2 granted"));
  EXPECT_NE(one.store->capabilities().store_id, other.store->capabilities().store_id);
}

TEST(MemoryBackend, SharesAStoreByItsName) {
  client one("memory:shares");
  client other("memory:shares");
  client stranger("memory:Shares");

  one.acquire(1, "a");
  other.acquire(2, "a", false);
  stranger.acquire(3, "a", false);

  EXPECT_THAT(other.events.told, ElementsAre("2 held"));
  EXPECT_THAT(stranger.events.told, ElementsAre("3 granted"));
  EXPECT_EQ(one.store->capabilities().store_id, other.store->capabilities().store_id);
  EXPECT_THAT(one.store->capabilities().store_id, StartsWith("memory:shares#"));
}

TEST(MemoryBackend, ForgetsAStoreWithItsLastClientButNeverItsTokens) {
  std::uint64_t first = 0;
  {
    client one("memory:forgets");
    one.acquire(1, "a");
    first = one.events.grant->tokens.first.value();
  }

  client next("memory:forgets");
  next.acquire(2, "a", false);

  ASSERT_THAT(next.events.told, ElementsAre("2 granted"));
  EXPECT_GT(next.events.grant->tokens.first.value(), first);
}

TEST(MemoryBackend, HandsOverToAnotherClient) {
  client one("memory:hands-over");
  client other("memory:hands-over");
  one.acquire(1, "a");
  other.acquire(2, "a");

  one.release(1, "a");

  EXPECT_THAT(one.events.told, ElementsAre("1 granted", "1 left"));
  EXPECT_THAT(other.events.told, ElementsAre("2 waiting", "2 notice: granted"));
  EXPECT_TRUE(other.events.grant->provisional);
}

TEST(MemoryBackend, TellsTheAskerBeforeTheOthers) {
  client one("memory:asker-first");
  client other("memory:asker-first");
  one.acquire(1, "a");
  other.acquire(2, "a");
  std::vector<std::string> order;
  one.events.on_event = [&] { order.emplace_back("asker"); };
  other.events.on_event = [&] { order.emplace_back("other"); };

  one.release(1, "a");

  EXPECT_THAT(order, ElementsAre("asker", "other"));
}

TEST(MemoryBackend, ShowsWhoHoldsALock) {
  client one("memory:");
  one.acquire(1, "a");

  const auto info = one.who("a");

  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->holders.at(0).host, "host");
  EXPECT_EQ(info->holders.at(0).pid, 42);
  EXPECT_EQ(info->holders.at(0).label, "test");
}

TEST(MemoryBackend, ListsBreaksAndSetsValues) {
  client one("memory:");
  one.acquire(1, "a");
  const lock_name a = "a";
  std::vector<std::string> done;

  one.store->set_value({.name = a, .holder = {1, 1}, .answer_by = {}}, "value",
                       [&](auto answer) { done.emplace_back(answer.value() ? "set" : "not set"); });
  one.store->list("", "", 10, [&](auto answer) { done.push_back(answer.value().at(0).name); });
  one.store->break_lock(a, one.events.grant->tokens.first, break_mode::at_once,
                        [&](auto answer) { done.emplace_back(answer ? "broken" : "not broken"); });

  EXPECT_THAT(done, ElementsAre("set", "a", "broken"));
  EXPECT_THAT(one.events.told, ElementsAre("1 granted", "1 notice: lost"));
}

TEST(MemoryBackend, TellsWatchersOfOtherClientsChanges) {
  client one("memory:watch");
  client other("memory:watch");
  other.store->watch("a", true);

  one.acquire(1, "a");
  other.store->watch("a", false);
  one.release(1, "a");

  EXPECT_THAT(other.events.told, ElementsAre("notice: a changed"));
}

TEST(MemoryBackend, HasNoInputOutputToDrive) {
  client one("memory:");
  backend_api::drive_ticket ticket;

  EXPECT_EQ(one.store->drive(ticket, {}), backend_api::drive_outcome::not_driven);
}

// Close.

TEST(MemoryBackend, AnswersClosedAfterClose) {
  client one("memory:");
  const lock_name a = "a";
  one.store->close();
  one.store->close();

  one.acquire(1, "a");
  EXPECT_EQ(std::exchange(one.events.failure, {}), errc::closed);
  one.renew(1, "a");
  EXPECT_EQ(std::exchange(one.events.failure, {}), errc::closed);
  one.release(1, "a");
  EXPECT_EQ(std::exchange(one.events.failure, {}), errc::closed);
  one.store->withdraw({.name = a, .holder = {1, 1}, .answer_by = {}});
  EXPECT_EQ(std::exchange(one.events.failure, {}), errc::closed);
  one.store->downgrade({.name = a, .holder = {1, 1}, .answer_by = {}});
  EXPECT_EQ(std::exchange(one.events.failure, {}), errc::closed);
  one.store->watch("a", true);
  std::error_code failure;
  one.store->who("a", [&](auto answer) {
    if (!answer) failure = answer.error().code;
  });
  EXPECT_EQ(failure, errc::closed);
}

TEST(MemoryBackend, KeepsTheLeasesOfAClosedClient) {
  client one("memory:keeps");
  client other("memory:keeps");
  one.acquire(1, "a");

  one.store->close();
  other.acquire(2, "a", false);

  EXPECT_THAT(other.events.told, ElementsAre("2 held"));
}

TEST(MemoryBackend, TellsAClosedClientNothing) {
  client one("memory:silent");
  client other("memory:silent");
  one.acquire(1, "a");
  other.acquire(2, "a");
  other.store->watch("a", true);
  other.events.told.clear();

  other.store->close();
  one.release(1, "a");

  EXPECT_THAT(other.events.told, IsEmpty());
}

TEST(MemoryBackend, MayBeClosedFromInsideItsOwnAnswer) {
  client one("memory:inside");
  one.events.on_event = [&] { one.store->close(); };

  one.acquire(1, "a");

  EXPECT_THAT(one.events.told, ElementsAre("1 granted"));
}

TEST(MemoryBackend, MayBeDestroyedFromInsideANotice) {
  client one("memory:destroyed");
  auto other = std::make_unique<client>("memory:destroyed");
  one.acquire(1, "a");
  other->acquire(2, "a");
  other->store->watch("a", true);
  other->events.on_event = [&] { other->store.reset(); };

  one.release(1, "a");

  EXPECT_THAT(other->events.told, ElementsAre("2 waiting", "2 notice: granted"));
}

TEST(MemoryBackend, MayBeAskedFromInsideAnAnswer) {
  client one("memory:");
  one.events.on_event = [&] {
    one.events.on_event = nullptr;
    one.release(1, "a");
  };

  one.acquire(1, "a");

  EXPECT_THAT(one.events.told, ElementsAre("1 granted", "1 left"));
}

// Threads.

/// Lets one thread wait for its grant, however it is told.
class grant_waiter : public backend_api::events {
 public:
  void acquire_answered(const holder_id& who, base::result<acquire_answer> answer) override {
    if (answer && std::holds_alternative<granted>(*answer))
      arrived(who, std::get<granted>(*answer));
  }
  void renewals_answered(std::span<renew_outcome>) override { ++calls; }
  void leave_answered(const holder_id&, base::result<leave_answer>) override { ++calls; }
  void downgrade_answered(const holder_id&, base::result<renew_answer>) override { ++calls; }
  void granted_notice(const holder_id& who, std::optional<granted> grant) override {
    arrived(who, *grant);
  }
  void lost_notice(const holder_id&) override { ++calls; }
  void changed_notice(const lock_name&) override { ++calls; }
  void reconnected() override { ++calls; }

  granted wait_for(const holder_id& who) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return grant_ && grant_->first == who; });
    return std::exchange(grant_, std::nullopt)->second;
  }

  std::atomic<int> calls = 0;

 private:
  void arrived(const holder_id& who, const granted& grant) {
    const std::lock_guard lock(mutex_);
    grant_ = {who, grant};
    changed_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::pair<holder_id, granted>> grant_;
};

TEST(MemoryBackendThreads, LetOneAtATimeInWithGrowingTokens) {
  constexpr int threads = 4;
  constexpr int rounds = 500;
  const lock_name name = "a";
  int entered = 0;               // guarded by the lock under test
  std::uint64_t last_token = 0;  // likewise
  {
    std::vector<std::jthread> crowd;
    for (std::uint64_t number = 1; number <= threads; ++number) {
      crowd.emplace_back([&, number] {
        grant_waiter events;
        const auto store = memory_backend().open({"memory:one-at-a-time", {}, events}).value();
        for (std::uint64_t round = 1; round <= rounds; ++round) {
          const holder_id who{number, round};
          store->acquire({.name = name,
                          .holder = who,
                          .lease_length = 1h,
                          .claim_window = 1h,
                          .ticket_length = 1h,
                          .may_wait = true,
                          .value = {},
                          .answer_by = {}});
          const std::uint64_t token = events.wait_for(who).tokens.first.value();
          EXPECT_GT(token, last_token);
          last_token = token;
          ++entered;
          store->release({.name = name, .holder = who, .answer_by = {}});
        }
      });
    }
  }
  EXPECT_EQ(entered, threads * rounds);
}

TEST(MemoryBackendThreads, NeverCallAListenerAfterItsClientClosed) {
  constexpr int rounds = 300;
  const lock_name name = "a";
  grant_waiter keeper_events;
  const auto keeper = memory_backend().open({"memory:closing", {}, keeper_events}).value();
  std::atomic<bool> stop = false;
  std::latch running(2);
  std::vector<std::jthread> crowd;
  for (std::uint64_t number = 1; number <= 2; ++number) {
    crowd.emplace_back([&, number] {
      for (std::uint64_t round = 1; !stop; ++round) {
        const holder_id who{number, round};
        keeper->acquire({.name = name,
                         .holder = who,
                         .lease_length = 1h,
                         .ticket_length = 1h,
                         .may_wait = false,
                         .value = {},
                         .answer_by = {}});
        keeper->withdraw({.name = name, .holder = who, .answer_by = {}});
        if (round == 1) running.count_down();
      }
    });
  }

  running.wait();

  // Each listener dies right after close(): a late notice would be a use after free.
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    const auto events = std::make_unique<grant_waiter>();
    const auto store = memory_backend().open({"memory:closing", {}, *events}).value();
    store->watch(name, true);
    const holder_id who{9, round};
    store->acquire({.name = name,
                    .holder = who,
                    .lease_length = 1ms,
                    .claim_window = 1ms,
                    .ticket_length = 1ms,
                    .may_wait = true,
                    .value = {},
                    .answer_by = {}});
    std::this_thread::yield();
    store->close();
  }
  stop = true;
  crowd.clear();
  EXPECT_GT(keeper_events.calls, 0);
}

TEST(MemoryBackendThreads, MayOpenAndCloseOneNameAtOnce) {
  std::atomic<std::uint64_t> top = 0;
  std::vector<std::jthread> crowd;
  for (std::uint64_t number = 1; number <= 4; ++number) {
    crowd.emplace_back([&, number] {
      for (std::uint64_t round = 1; round <= 200; ++round) {
        const std::uint64_t top_before = top;
        recorder events;
        const auto store = memory_backend().open({"memory:open-close", {}, events}).value();
        store->acquire({.name = std::to_string(number),
                        .holder = {number, round},
                        .lease_length = 1h,
                        .value = {},
                        .answer_by = {}});
        // The store may be an old or a new one: its tokens are above all that were known before it
        // was opened.
        if (!events.grant) continue;
        const std::uint64_t token = events.grant->tokens.first.value();
        EXPECT_GT(token, top_before);
        std::uint64_t known = top;
        while (known < token && !top.compare_exchange_weak(known, token)) {
        }
      }
    });
  }
}

}  // namespace
}  // namespace sallyport::backends
