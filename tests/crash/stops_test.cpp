#include "backends/local/process.hpp"
#include "backends/local/steps.hpp"
#include "tests/crash/crash_kit.hpp"
#include <sallyport/fence.hpp>

#include <atomic>
#include <iostream>
#include <stop_token>
#include <string>

// Processes that stand still (SIGSTOP, a debugger, a frozen group) and wake up again.
namespace sallyport::crash {
namespace {

using backends::local::step;

class Stops : public crash_test {
 protected:
  [[nodiscard]] holder_process start(const std::string& name, int lease_ms) const {
    return holder_process{
        address(), name, {"--lease-ms", std::to_string(lease_ms), "--timeout-ms", "2000"}};
  }
  [[nodiscard]] std::string gate_file() const { return folder() + "/resource.gate"; }

  /// Stops the process inside the store's gate.
  static void halt_inside(holder_process& one) {
    ASSERT_EQ(one.ask("halt " + std::to_string(static_cast<int>(step::inside_the_gate)) + " 1"),
              "armed");
    one.send("acquire");
    ASSERT_TRUE(eventually([&] {
      return backends::local::describe_process(one.pid()).find("stopped") != std::string::npos;
    }));
  }
};

TEST_F(Stops, PastItsLeaseAHolderIsLateAtEveryGate) {
  holder_process sleeper = start("door", 400);
  ASSERT_TRUE(sleeper.ask("acquire").starts_with("acquired"));
  EXPECT_EQ(sleeper.ask("write " + gate_file()), "passed");

  sleeper.stop();
  mutex mine{open(), "door", {.lease_length = 20s}};
  auto held = mine.try_acquire_for(patience);
  ASSERT_TRUE(held);
  fence::file_gate gate(gate_file());
  EXPECT_EQ(gate.run(*held, [] {}), fence::verdict::passed);
  sleeper.resume();

  EXPECT_EQ(sleeper.ask("valid"), "false");
  EXPECT_TRUE(eventually([&] { return sleeper.ask("lost") == "true"; }));
  EXPECT_EQ(sleeper.ask("write " + gate_file()), "stale");
  EXPECT_EQ(sleeper.ask("release"), "already lost");
  EXPECT_TRUE(held->valid());
  EXPECT_EQ(gate.run(*held, [] {}), fence::verdict::passed);
}

TEST_F(Stops, AWaiterThatIsGrantedTheLockDelaysOthersByItsClaimWindowAtMost) {
  const auto store = open();
  mutex mine{store, "door", {.lease_length = 20s}};
  auto held = mine.try_acquire();
  ASSERT_TRUE(held);
  holder_process sleeper = start("door", 500);
  sleeper.send("acquire");
  ASSERT_TRUE(eventually([&] { return store.who("door")->waiters.size() == 1; }));
  mutex next{open(), "door", {.lease_length = 20s}};

  sleeper.stop();
  background waiter([&] {
    const auto got = next.try_acquire_for(patience);
    return got ? lease_clock::now() : lease_clock::time_point::max();
  });
  ASSERT_TRUE(eventually([&] { return store.who("door")->waiters.size() == 2; }));
  const auto released = lease_clock::now();
  held->release();

  EXPECT_LT(waiter.get() - released, 500ms + 2s);
  sleeper.resume();
  EXPECT_TRUE(sleeper.answer().starts_with("acquired")) << "it keeps its place";
}

TEST_F(Stops, InsideTheGateAreNamedToThoseWhoWait) {
  const auto store = open({.request_timeout = 200ms});
  mutex mine{store, "mine", {.lease_length = 20s}};
  holder_process sleeper = start("door", 20'000);
  halt_inside(sleeper);

  std::string what;
  const auto asked = lease_clock::now();
  try {
    static_cast<void>(mine.try_acquire());
    ADD_FAILURE() << "the store was shut";
  } catch (const lock_error& error) {
    EXPECT_EQ(error.code(), errc::unavailable);
    what = error.what();
  }
  const auto waited = lease_clock::now() - asked;
  sleeper.resume();

  EXPECT_GE(waited, 190ms);
  EXPECT_LT(waited, 5s);
  EXPECT_NE(what.find(std::to_string(sleeper.pid())), std::string::npos) << what;
  EXPECT_NE(what.find("stopped"), std::string::npos) << what;
  EXPECT_NE(what.find("kill -CONT"), std::string::npos) << what;
  EXPECT_TRUE(sleeper.answer().starts_with("acquired"));
  EXPECT_TRUE(mine.try_acquire());
}

TEST_F(Stops, InsideTheGateDoNotKeepALossFromBeingTold) {
  holder_process holder = start("mine", 600);
  holder_process waiter = start("mine", 600);
  holder_process sleeper = start("door", 20'000);
  ASSERT_TRUE(holder.ask("acquire").starts_with("acquired"));
  waiter.send("acquire");
  ASSERT_TRUE(eventually([&] { return open().who("mine")->waiters.size() == 1; }));

  halt_inside(sleeper);
  // Nothing else is asked: a question about the lease might be what tells.
  EXPECT_TRUE(eventually([&] { return holder.ask("lost_late") != "not yet"; }));
  const std::string late = holder.ask("lost_late");
  EXPECT_EQ(holder.ask("valid"), "false");
  sleeper.resume();

  // Behind the gate a request would stand for two seconds.
  std::cout << "lost() fired " << late << " ms after the deadline" << std::endl;
  EXPECT_LT(late == "not yet" ? patience : std::chrono::milliseconds(std::stoi(late)), 800ms);
  EXPECT_EQ(holder.ask("release"), "already lost");
  EXPECT_TRUE(sleeper.answer().starts_with("acquired"));
  EXPECT_TRUE(waiter.answer().starts_with("acquired"));
}

TEST_F(Stops, InsideTheGateWhileSomebodyDiesDoNotKeepALossFromBeingTold) {
  // Holds one lock and waits for another in one client: its watchdog hears of the death.
  const auto store = open();
  mutex mine{store, "mine", {.lease_length = 400ms}};
  mutex other{store, "other", {.lease_length = 400ms, .local_turns = 1}};
  holder_process holder = start("other", 20'000);
  holder_process sleeper = start("door", 20'000);
  ASSERT_TRUE(holder.ask("acquire").starts_with("acquired"));
  auto held = mine.try_acquire();
  ASSERT_TRUE(held);
  background waiter([&] { return other.try_acquire_for(patience).has_value(); });
  ASSERT_TRUE(eventually([&] { return store.who("other")->waiters.size() == 1; }));
  std::atomic<std::int64_t> fired{0};
  const std::stop_callback note(held->lost(),
                                [&] { fired = lease_clock::now().time_since_epoch().count(); });

  halt_inside(sleeper);
  holder.kill();
  EXPECT_TRUE(eventually([&] { return fired != 0; }));
  const auto late = fired - held->deadline().time_since_epoch().count();
  sleeper.resume();

  std::cout << "lost() fired " << late / 1000 << " us after the deadline" << std::endl;
  EXPECT_LT(std::chrono::nanoseconds(late), 800ms);
  EXPECT_TRUE(waiter.get());
}

TEST_F(Stops, InsideTheGateAndThenKilledLetAllGoOn) {
  {
    mutex mine{open(), "door", {.lease_length = 20s}};
    holder_process sleeper = start("door", 20'000);
    halt_inside(sleeper);
    background next([&] { return mine.try_acquire_for(patience).has_value(); });

    sleeper.kill();

    EXPECT_TRUE(next.get());
  }
  expect_nothing_left();
}

}  // namespace
}  // namespace sallyport::crash
