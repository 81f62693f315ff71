#include "backends/redis/test_live_store.hpp"
#include "tests/contract/kit/holder_process.hpp"

#include <algorithm>
#include <cstdlib>
#include <stop_token>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

// Holders and waiters that are killed, stopped, cancelled, closed or forked.
namespace sallyport::redis_live {
namespace {

using contract::holder_process;

/// The token in "acquired TOKEN"; 0 when it is something else.
std::uint64_t token_in(const std::string& answer) {
  constexpr std::string_view word = "acquired ";
  if (!answer.starts_with(word)) return 0;
  return std::stoull(answer.substr(word.size()));
}

TEST(StoppedHolder, IsToldOfItsLossAndRefusedAtTheGate) {
  const redis_server server;
  holder_process holder{address_at(server.port()), "door", {"--lease-ms", "1000"}};
  const auto late_token = token_in(holder.ask("acquire"));
  ASSERT_GT(late_token, 0U);
  mutex lock{open(server.port()), "door", lasting()};

  holder.stop();
  auto next = lock.try_acquire_for(patience);
  ASSERT_TRUE(next);
  fence::memory_gate gate;
  ASSERT_EQ(gate.run(*next, [] {}), fence::verdict::passed);
  holder.resume();

  EXPECT_EQ(holder.ask("valid"), "false");
  EXPECT_EQ(holder.ask("state"), "lost");
  auto late = next->fence_pass();
  late.token = fencing_token(late_token);
  EXPECT_EQ(gate.run(late, [] { ADD_FAILURE() << "a late write"; }), fence::verdict::stale);
  EXPECT_EQ(holder.ask("release"), "already_lost");
  EXPECT_TRUE(next->valid());
  EXPECT_EQ(next->release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(KilledWaiter, IsPassedOverAtOnce) {
  const redis_server server;
  mutex held_lock{open(server.port()), "door", lasting()};
  auto held = held_lock.try_acquire();  // does not listen: whoever may wait does
  ASSERT_TRUE(held);
  holder_process dead{address_at(server.port()), "door"};  // its heartbeat is 1 s: a window of 3 s
  ASSERT_TRUE(dead.send("acquire"));
  ASSERT_TRUE(waiters_become(server, "door", 1));
  mutex second_lock{open(server.port()), "door", lasting()};
  mutex third_lock{open(server.port()), "door", lasting()};
  waiter second(second_lock);
  ASSERT_TRUE(waiters_become(server, "door", 2));
  waiter third(third_lock);
  ASSERT_TRUE(waiters_become(server, "door", 3));

  dead.kill();
  // The server has noticed that its connections are gone.
  const auto listeners = [&] {
    return server.command({"PUBSUB", "CHANNELS", "*client:*"}).items.size();
  };
  ASSERT_TRUE(eventually([&] { return listeners() == 2; })) << listeners() << " listen";
  held->release();
  const auto released = lease_clock::now();

  auto second_got = second.get();
  ASSERT_TRUE(second_got);
  EXPECT_LT(lease_clock::now() - released, 1s) << "the dead one's claim window was waited for";
  EXPECT_FALSE(third.done());
  second_got->release();
  auto third_got = third.get();
  ASSERT_TRUE(third_got);
  third_got->release();
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(StoppedWaiter, DelaysByItsClaimWindowAtMost) {
  const redis_server server;
  mutex held_lock{open(server.port()), "door", lasting()};
  auto held = held_lock.acquire();
  holder_process stopped{address_at(server.port()), "door", {"--lease-ms", "900"}};
  ASSERT_TRUE(stopped.send("acquire"));
  ASSERT_TRUE(waiters_become(server, "door", 1));
  mutex second_lock{open(server.port()), "door", lasting()};
  waiter second(second_lock);
  ASSERT_TRUE(waiters_become(server, "door", 2));

  stopped.stop();  // its connections stay open: the server believes that it listens
  held.release();
  const auto released = lease_clock::now();

  auto got = second.get();
  ASSERT_TRUE(got);
  // The window is the whole lease of 900 ms; then a heartbeat of the second.
  EXPECT_LT(lease_clock::now() - released, 900ms + quick().heartbeat + 800ms);
  stopped.resume();
  got->release();
  EXPECT_GT(token_in(stopped.answer()), got->token().value()) << "it entered on its late notice";
  EXPECT_EQ(stopped.ask("release"), "released");
  EXPECT_TRUE(nothing_is_left(server));
}

/// Many waiters on threads of their own, in one client; all are cancelled.
void cancel_many(const redis_server& server, bool one_name, const lock_options& how) {
  constexpr int count = 1000;
  const auto holding = open(server.port());
  const auto waiting = open(server.port());
  const auto name_of = [&](int i) { return one_name ? "door" : "door-" + std::to_string(i); };
  std::vector<lease> held;
  for (int i = 0; i < (one_name ? 1 : count); ++i) {
    held.push_back(mutex{holding, name_of(i), lasting()}.acquire());
  }
  std::stop_source stop;
  std::atomic<int> got{0};
  std::atomic<int> waiting_now{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, name = name_of(i)] {
      mutex lock{waiting, name, how};
      ++waiting_now;
      try {
        if (lock.acquire(stop.get_token())) ++got;
      } catch (const lock_error& error) {
        ADD_FAILURE() << error.what();
      }
    });
  }
  ASSERT_TRUE(eventually([&] { return waiting_now.load() == count; }));
  const std::string last = name_of(count - 1);
  EXPECT_TRUE(eventually([&] { return server.command({"ZCARD", last + "\1queue"}).integer > 0; }));
  if (one_name && how.local_turns == 1) {
    EXPECT_TRUE(waiters_become(server, "door", count));
  }

  stop.request_stop();
  threads.clear();

  EXPECT_EQ(got.load(), 0);
  for (const lease& each : held) EXPECT_TRUE(each.valid());
  held.clear();
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(ManyWaiters, OnOneNameLeaveNothingWhenCancelled) {
  const redis_server server;
  cancel_many(server, true, lasting());
}

TEST(ManyWaiters, InALocalQueueLeaveNothingWhenCancelled) {
  const redis_server server;
  cancel_many(server, true, {.lease_length = 60s});
}

TEST(ManyWaiters, OnDistinctNamesLeaveNothingWhenCancelled) {
  const redis_server server;
  cancel_many(server, false, lasting());
}

TEST(ClosedClient, WithWaitersAndLeasesLeavesNothing) {
  const redis_server server;
  mutex other{open(server.port()), "taken", lasting()};
  auto others = other.acquire();
  std::stop_source stop;
  std::vector<background<bool>> waiters;
  {
    auto store = std::make_optional(open(server.port()));
    std::vector<lease> leases;
    for (int i = 0; i < 20; ++i) {
      leases.push_back(mutex{*store, "mine-" + std::to_string(i), lasting()}.acquire());
    }
    for (int i = 0; i < 5; ++i) {
      waiters.emplace_back([lock = std::make_shared<mutex>(*store, "taken", lasting()),
                            token = stop.get_token()] { return lock->acquire(token).has_value(); });
    }
    ASSERT_TRUE(waiters_become(server, "taken", 5));
    store.reset();
    // Leases and waiters keep the client alive; the last of them closes it.
  }
  EXPECT_TRUE(waiters_become(server, "taken", 5));
  stop.request_stop();
  for (auto& each : waiters) EXPECT_FALSE(each.get());
  waiters.clear();

  others.release();
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(ClosedClient, InAnUnreachableStoreEndsInTime) {
  redis_server server;
  auto lock = std::make_optional<mutex>(open(server.port()), "door", lasting());
  auto held = std::make_optional(lock->acquire());
  server.pause();
  const auto began = lease_clock::now();

  held.reset();
  lock.reset();

  EXPECT_LT(lease_clock::now() - began, slack);
  server.resume();
}

TEST(Forked, ChildTouchesNeitherLeasesNorConnections) {
  const redis_server server;
  mutex lock{open(server.port()), "door", lasting(3s)};
  mutex wanted_lock{open(server.port()), "door", lasting(3s)};
  auto held = std::make_optional(lock.acquire());
  waiter next(wanted_lock);
  ASSERT_TRUE(waiters_become(server, "door", 1));

  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool dead = !held->valid();
    held.reset();
    ::_exit(dead ? 0 : 1);
  }
  int status = 0;
  ASSERT_TRUE(eventually([&] { return ::waitpid(child, &status, WNOHANG) == child; }));

  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(held->valid());
  EXPECT_FALSE(next.done());
  EXPECT_EQ(held->release(), release_result::released);
  auto got = next.get();
  ASSERT_TRUE(got);
  got->release();
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(Forked, ChildMayOpenAClientOfItsOwn) {
  const redis_server server;
  mutex lock{open(server.port()), "door", lasting()};
  auto held = lock.acquire();

  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int verdict = 1;
    try {
      mutex own{open(server.port()), "window", lasting()};
      mutex same{open(server.port()), "door", lasting()};
      verdict = own.try_acquire() && !same.try_acquire() ? 0 : 2;
    } catch (...) {
      verdict = 3;
    }
    ::_exit(verdict);
  }
  int status = 0;
  ASSERT_TRUE(eventually([&] { return ::waitpid(child, &status, WNOHANG) == child; }));

  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(server));
}

}  // namespace
}  // namespace sallyport::redis_live
