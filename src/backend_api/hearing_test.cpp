#include "backend_api/hearing.hpp"

#include "base/check.hpp"
#include "base/descriptor.hpp"
#include "base/mutex.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace sallyport::backend_api {
namespace {

using namespace std::chrono_literals;

constexpr time_point never = time_point::max();
constexpr int patience_ms = 10'000;

using number = std::uint64_t;

void write_number(const base::descriptor& where, number what) {
  SALLYPORT_CHECK(send(where.number(), &what, sizeof what, MSG_NOSIGNAL) == sizeof what);
}

bool readable(int descriptor, int for_ms) {
  pollfd watched{descriptor, POLLIN, 0};
  return poll(&watched, 1, for_ms) == 1;
}

/// The smallest client of a connection: the other end says numbers, each finishes a ticket.
class numbers_ear final : public ear {
 public:
  numbers_ear() {
    std::array<int, 2> ends{-1, -1};
    SALLYPORT_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    far_end = base::descriptor(ends[0]);
    near_end_ = base::descriptor(ends[1]);
    for (const int member : {near_end_.number(), bell_.number()}) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.fd = member;
      SALLYPORT_CHECK(epoll_ctl(everything.number(), EPOLL_CTL_ADD, member, &event) == 0);
    }
  }

  bool hear(time_point deadline) override {
    SALLYPORT_CHECK(!inside_.exchange(true));
    struct hearing_end {
      std::atomic<bool>& inside;
      ~hearing_end() { inside.store(false); }
    } const in_the_end{inside_};
    {
      const base::mutex_lock lock(mutex_);
      listener_ = std::this_thread::get_id();
      changed_.notify_all();
    }
    if (while_hearing) while_hearing();
    epoll_event event{};
    // A deadline that is not now is only looked at again and again: tests move no clock.
    const int got = epoll_wait(everything.number(), &event, 1, deadline == time_point{} ? 0 : 20);
    const bool go_on = !closed.load();
    if (go_on && got == 1) take(event.data.fd);
    return go_on;
  }

  void ring() noexcept override { eventfd_write(bell_.number(), 1); }
  urgency unfinished() override { return under_way.load(); }

  void expect(number what, drive_ticket& ticket) {
    const base::mutex_lock lock(mutex_);
    tickets_.emplace(what, &ticket);
  }

  /// Waits until a thread is inside hear().
  std::thread::id wait_for_listener() {
    const base::mutex_lock lock(mutex_);
    std::unique_lock<std::mutex> native{mutex_.native(), std::adopt_lock};
    while (!listener_) changed_.wait(native);
    native.release();
    return *listener_;
  }
  std::map<std::thread::id, int> takers() {
    const base::mutex_lock lock(mutex_);
    return takers_;
  }

  base::descriptor everything{epoll_create1(EPOLL_CLOEXEC)};
  base::descriptor far_end;
  std::atomic<bool> closed{false};
  std::atomic<urgency> under_way{urgency::nothing};
  std::function<void()> while_hearing;  // set while nobody hears

 private:
  void take(int member) {
    if (member == bell_.number()) {
      eventfd_t rings = 0;
      eventfd_read(bell_.number(), &rings);
      return;
    }
    number what = 0;
    SALLYPORT_CHECK(recv(near_end_.number(), &what, sizeof what, MSG_WAITALL) == sizeof what);
    drive_ticket* ticket = nullptr;
    {
      const base::mutex_lock lock(mutex_);
      ++takers_[std::this_thread::get_id()];
      const auto found = tickets_.find(what);
      if (found == tickets_.end()) return;
      ticket = found->second;
      tickets_.erase(found);
    }
    ticket->finish();
  }

  base::descriptor near_end_;
  base::descriptor bell_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<bool> inside_{false};
  base::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::thread::id> listener_ SALLYPORT_GUARDED_BY(mutex_);
  std::map<number, drive_ticket*> tickets_ SALLYPORT_GUARDED_BY(mutex_);
  std::map<std::thread::id, int> takers_ SALLYPORT_GUARDED_BY(mutex_);
};

class Hearing : public testing::Test {
 protected:
  void say(number what) { write_number(ear_.far_end, what); }
  [[nodiscard]] bool attention(int for_ms = 0) const {
    return readable(hearing_.attention_fd(), for_ms);
  }
  /// As after a caller that came and went: nobody needs the watchdog.
  void silence() {
    drive_ticket ticket;
    ear_.expect(0, ticket);
    say(0);
    ASSERT_EQ(hearing_.drive(ticket, never), drive_outcome::finished);
  }

  numbers_ear ear_;
  hearing hearing_{ear_, ear_.everything.number(),
                   std::move(hearing::make_attention(ear_.everything.number()).value())};
};

TEST_F(Hearing, LetsALoneCallerHearForItself) {
  for (number i = 1; i <= 100; ++i) {
    drive_ticket ticket;
    ear_.expect(i, ticket);
    say(i);
    ASSERT_EQ(hearing_.drive(ticket, never), drive_outcome::finished);
  }

  EXPECT_EQ(ear_.takers(), (std::map<std::thread::id, int>{{std::this_thread::get_id(), 100}}));
  EXPECT_EQ(hearing_.switches(), 1U) << "silenced once, by the first call";
}

TEST_F(Hearing, ReturnsAtOnceWithATicketThatIsFinished) {
  drive_ticket ticket;
  ticket.finish();

  EXPECT_EQ(hearing_.drive(ticket, time_point{}), drive_outcome::finished);
}

TEST_F(Hearing, CallsTheWatchdogForARequestWhoseCallerGaveUpBeforeItCame) {
  silence();
  ear_.under_way = urgency::now;
  drive_ticket ticket;
  ticket.finish();

  EXPECT_EQ(hearing_.drive(ticket, never), drive_outcome::finished);

  say(1);
  EXPECT_TRUE(attention(patience_ms));
}

TEST_F(Hearing, CallsTheWatchdogFromTheBeginning) {
  say(1);

  EXPECT_TRUE(attention(patience_ms));

  hearing_.attend();
  EXPECT_FALSE(attention());
}

TEST_F(Hearing, IsSilentAfterALoneCallerHasGone) {
  silence();

  say(1);

  EXPECT_FALSE(attention());
}

TEST_F(Hearing, CallsTheWatchdogForThoseWhoAskToBeHeard) {
  silence();
  say(1);

  hearing_.be_heard();

  EXPECT_TRUE(attention(patience_ms));
}

TEST_F(Hearing, CallsTheWatchdogWhenSomethingIsUnfinished) {
  ear_.under_way = urgency::now;
  silence();

  say(1);

  EXPECT_TRUE(attention(patience_ms));
}

TEST_F(Hearing, GivesStragglersTimeBeforeItCallsTheWatchdog) {
  ear_.under_way = urgency::later;
  silence();
  say(1);

  EXPECT_EQ(hearing_.switches(), 1U) << "silenced by the caller, and not called again";
  ASSERT_TRUE(attention(patience_ms));

  hearing_.attend();
  EXPECT_FALSE(attention()) << "heard, and the alarm was taken";
  say(2);
  EXPECT_TRUE(attention(patience_ms)) << "and what comes from now on is heard at once";
}

TEST_F(Hearing, LetsACallerThatComesAgainHearItsOwnStragglers) {
  ear_.under_way = urgency::later;
  for (int i = 0; i < 1'000; ++i) {
    silence();
    if (attention()) hearing_.attend();
  }

  EXPECT_EQ(ear_.takers()[std::this_thread::get_id()], 1'000);
  EXPECT_LT(hearing_.switches(), 500U) << "now and then, not for every call";
}

TEST_F(Hearing, IsNotCalledAgainAndAgainByAnAlarmWhileACallerHears) {
  ear_.under_way = urgency::later;
  silence();
  drive_ticket ticket;
  const std::jthread caller([&] { hearing_.drive(ticket, never); });
  while (hearing_.blocked() == 0) std::this_thread::yield();
  ASSERT_TRUE(attention(patience_ms));

  hearing_.attend();

  EXPECT_FALSE(attention()) << "the caller hears for everybody";
  ticket.finish();
}

TEST_F(Hearing, GivesStragglersTimeWhenTheirCallerGaveUpBeforeItCame) {
  silence();
  ear_.under_way = urgency::later;
  drive_ticket ticket;
  ticket.finish();

  EXPECT_EQ(hearing_.drive(ticket, never), drive_outcome::finished);

  EXPECT_EQ(hearing_.switches(), 1U);
  EXPECT_TRUE(attention(patience_ms));
}

TEST_F(Hearing, IsSilentWhileACallerHears) {
  drive_ticket ticket;
  std::jthread caller([&] { hearing_.drive(ticket, never); });
  ear_.wait_for_listener();

  say(1);

  EXPECT_FALSE(attention());
  ticket.finish();
}

TEST_F(Hearing, RemembersAWishUntilTheCallerHasGone) {
  drive_ticket ticket;
  {
    const std::jthread caller([&] { hearing_.drive(ticket, never); });
    ear_.wait_for_listener();
    hearing_.be_heard();
    EXPECT_FALSE(attention());
    ticket.finish();
  }

  say(1);

  EXPECT_TRUE(attention(patience_ms));
}

TEST_F(Hearing, IsInterruptedWhenAnotherThreadFinishesTheTicket) {
  drive_ticket ticket;
  std::jthread caller([&] { EXPECT_EQ(hearing_.drive(ticket, never), drive_outcome::finished); });
  ear_.wait_for_listener();

  ticket.finish();

  caller.join();
  EXPECT_TRUE(ear_.takers().empty());
}

TEST_F(Hearing, LetsTheOneWhoCameFirstHearForTheSecond) {
  drive_ticket first;
  drive_ticket second;
  ear_.expect(2, second);
  std::jthread leader([&] { hearing_.drive(first, never); });
  const std::thread::id leading = ear_.wait_for_listener();

  std::jthread follower([&] { EXPECT_EQ(hearing_.drive(second, never), drive_outcome::finished); });
  say(2);
  follower.join();

  EXPECT_EQ(ear_.takers(), (std::map<std::thread::id, int>{{leading, 1}}));
  first.finish();
}

TEST_F(Hearing, LeavesTheRestToTheWatchdog) {
  hearing_.attend();  // there is one
  drive_ticket first;
  drive_ticket second;
  ear_.expect(2, second);
  std::jthread leader([&] { hearing_.drive(first, never); });
  // Not wait_for_listener(): somebody was heard before, and the follower could come first.
  while (hearing_.blocked() < 1) std::this_thread::yield();
  std::jthread follower([&] { EXPECT_EQ(hearing_.drive(second, never), drive_outcome::finished); });
  while (hearing_.blocked() < 2) std::this_thread::yield();

  first.finish();
  leader.join();
  say(2);

  ASSERT_TRUE(attention(patience_ms));
  hearing_.attend();
  follower.join();
  EXPECT_EQ(ear_.takers(), (std::map<std::thread::id, int>{{std::this_thread::get_id(), 1}}));
}

// A watchdog that was called, and comes when a lone caller has silenced the attention and gone.
TEST_F(Hearing, CallsTheWatchdogAgainForWhoCameWhileItHeardTooLate) {
  say(7);
  hearing_.attend();  // the watchdog runs
  silence();
  drive_ticket ticket;
  ear_.expect(1, ticket);
  std::jthread sleeper;
  ear_.while_hearing = [&] {
    sleeper = std::jthread([&] { hearing_.drive(ticket, never); });
    while (hearing_.blocked() == 0) std::this_thread::yield();
  };
  hearing_.attend();
  ear_.while_hearing = nullptr;

  say(1);
  const bool called = attention(patience_ms / 10);
  EXPECT_TRUE(called);
  if (called) {
    hearing_.attend();
  } else {
    ticket.finish();
  }
}

TEST_F(Hearing, CallsTheWatchdogWhenWhoHearsFindsNoMemory) {
  ear_.while_hearing = [] { throw std::bad_alloc(); };
  drive_ticket ticket;
  ear_.expect(1, ticket);
  say(1);

  EXPECT_THROW(static_cast<void>(hearing_.drive(ticket, never)), std::bad_alloc);
  EXPECT_EQ(hearing_.blocked(), 0U);
  ear_.while_hearing = nullptr;
  ASSERT_TRUE(attention(patience_ms));
  hearing_.attend();

  EXPECT_TRUE(ticket.finished());
}

TEST_F(Hearing, WaitsForALeaderThatDoesNotRunAndLetsTheWatchdogGoOnBehindIt) {
  std::atomic<bool> stands_still{true};
  ear_.while_hearing = [&] { stands_still.wait(true); };
  drive_ticket mine;
  ear_.expect(1, mine);
  std::thread leader([&] { EXPECT_EQ(hearing_.drive(mine, never), drive_outcome::finished); });
  const auto listener = ear_.wait_for_listener();
  EXPECT_EQ(listener, leader.get_id());
  drive_ticket renewal;
  ear_.expect(2, renewal);
  say(2);

  hearing_.be_heard();
  EXPECT_FALSE(attention()) << "nobody else may hear, and the watchdog is not to spin";
  hearing_.attend();
  EXPECT_FALSE(renewal.finished());
  stands_still = false;
  stands_still.notify_all();
  say(1);
  leader.join();
  while (!renewal.finished() && attention(patience_ms)) hearing_.attend();

  EXPECT_TRUE(renewal.finished());
}

TEST_F(Hearing, HoldsTheDeadlineOfWhoHears) {
  drive_ticket ticket;

  EXPECT_EQ(hearing_.drive(ticket, time_point{1ns}), drive_outcome::deadline_passed);
}

TEST_F(Hearing, HoldsTheDeadlineOfWhoSleeps) {
  drive_ticket first;
  drive_ticket second;
  std::jthread leader([&] { hearing_.drive(first, never); });
  ear_.wait_for_listener();

  EXPECT_EQ(hearing_.drive(second, time_point{1ns}), drive_outcome::deadline_passed);

  EXPECT_FALSE(second.finished());
  first.finish();
}

TEST_F(Hearing, LetsASleeperHearWhenThereWasNeverAWatchdog) {
  drive_ticket first;
  drive_ticket second;
  ear_.expect(2, second);
  std::jthread leader([&] { hearing_.drive(first, never); });
  ear_.wait_for_listener();
  std::jthread follower([&] { EXPECT_EQ(hearing_.drive(second, never), drive_outcome::finished); });

  first.finish();
  leader.join();
  say(2);

  follower.join();
}

TEST_F(Hearing, SaysNotDrivenWhenTheEarWasClosed) {
  drive_ticket ticket;
  std::jthread caller([&] { EXPECT_EQ(hearing_.drive(ticket, never), drive_outcome::not_driven); });
  ear_.wait_for_listener();

  ear_.closed = true;
  ear_.ring();

  caller.join();
}

/// With a watchdog. What is asked is answered at once.
class HearingWithWatchdog : public Hearing, public testing::WithParamInterface<urgency> {
 protected:
  void ask(number what) {
    drive_ticket ticket;
    ear_.expect(what, ticket);
    say(what);
    EXPECT_EQ(hearing_.drive(ticket, never), drive_outcome::finished);
  }

  std::atomic<bool> stop_{false};
  std::jthread watchdog_{[this] {
    while (!stop_) {
      if (readable(hearing_.attention_fd(), 50)) hearing_.attend();
    }
  }};
};

// Nobody has a deadline: one lost wake-up and the test hangs until its time limit.
TEST_P(HearingWithWatchdog, LosesNoWakeUpWhenManyComeAndGo) {
  ear_.under_way = GetParam();
  constexpr number callers = 6;
  constexpr number rounds = 500;
  {
    std::vector<std::jthread> threads;
    for (number caller = 0; caller < callers; ++caller) {
      threads.emplace_back([this, caller] {
        for (number round = 0; round < rounds; ++round) ask(1 + caller * rounds + round);
      });
    }
  }
  stop_ = true;
  watchdog_.join();

  int taken = 0;
  for (const auto& [thread, count] : ear_.takers()) taken += count;
  EXPECT_EQ(taken, static_cast<int>(callers * rounds));
}

INSTANTIATE_TEST_SUITE_P(WhateverIsLeft, HearingWithWatchdog,
                         testing::Values(urgency::nothing, urgency::later, urgency::now));

}  // namespace
}  // namespace sallyport::backend_api
