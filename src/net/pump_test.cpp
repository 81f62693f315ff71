#include "net/pump.hpp"

#include "base/check.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace sallyport::net {
namespace {

using namespace std::chrono_literals;
using time_point = pump::time_point;

class told final : public pump::source {
 public:
  void ready(std::uint32_t events) override {
    events_.push_back(events);
    if (when_ready) when_ready();
  }
  void due(time_point now) override {
    times_.push_back(now);
    if (when_due) when_due();
  }

  std::function<void()> when_ready;
  std::function<void()> when_due;
  std::vector<std::uint32_t> events_;
  std::vector<time_point> times_;
};

struct socket_pair {
  socket_pair() {
    std::array<int, 2> ends{-1, -1};
    SALLYPORT_CHECK(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
    here = base::descriptor(ends[0]);
    there = base::descriptor(ends[1]);
  }
  void say() const { SALLYPORT_CHECK(write(there.number(), "x", 1) == 1); }

  base::descriptor here;
  base::descriptor there;
};

class Pump : public testing::Test {
 protected:
  std::shared_ptr<pump> pump_ = pump::make().value();
  std::shared_ptr<told> one_ = std::make_shared<told>();
  std::shared_ptr<told> two_ = std::make_shared<told>();
};

TEST_F(Pump, TellsWhenADescriptorIsReady) {
  const socket_pair pair;
  const auto number = pump_->enroll(one_);
  ASSERT_TRUE(pump_->watch(number, pair.here.number(), EPOLLIN));

  pump_->run_once({});
  EXPECT_TRUE(one_->events_.empty());
  pair.say();
  pump_->run_once(time_point::max());

  EXPECT_EQ(one_->events_, (std::vector<std::uint32_t>{EPOLLIN}));
}

TEST_F(Pump, ChangesWhatItWatchesFor) {
  const socket_pair pair;
  const auto number = pump_->enroll(one_);
  pump_->watch(number, pair.here.number(), EPOLLIN);

  pump_->watch(number, pair.here.number(), EPOLLIN | EPOLLOUT);
  pump_->run_once(time_point::max());

  EXPECT_EQ(one_->events_, (std::vector<std::uint32_t>{EPOLLOUT}));
}

TEST_F(Pump, WatchesTheNewDescriptorInsteadOfTheOld) {
  const socket_pair before;
  const socket_pair after;
  const auto number = pump_->enroll(one_);
  pump_->watch(number, before.here.number(), EPOLLIN);
  pump_->watch(number, after.here.number(), EPOLLIN);

  before.say();
  pump_->run_once({});
  EXPECT_TRUE(one_->events_.empty());
  after.say();
  pump_->run_once({});

  EXPECT_EQ(one_->events_.size(), 1U);
}

TEST_F(Pump, WatchesADescriptorAgainThatWasClosedAndOpened) {
  auto before = std::make_unique<socket_pair>();
  const int old_number = before->here.number();
  const auto number = pump_->enroll(one_);
  pump_->watch(number, old_number, EPOLLIN);
  before.reset();
  const socket_pair after;
  ASSERT_EQ(after.here.number(), old_number) << "the kernel gives the lowest number";

  ASSERT_TRUE(pump_->watch(number, after.here.number(), EPOLLIN));
  after.say();
  pump_->run_once({});

  EXPECT_EQ(one_->events_.size(), 1U);
}

TEST_F(Pump, IgnoresAnEventOfASourceThatWasDismissedMeanwhile) {
  const socket_pair first;
  const socket_pair second;
  const auto number_one = pump_->enroll(one_);
  const auto number_two = pump_->enroll(two_);
  pump_->watch(number_one, first.here.number(), EPOLLIN);
  pump_->watch(number_two, second.here.number(), EPOLLIN);
  one_->when_ready = [&] { pump_->dismiss(number_two); };
  two_->when_ready = [&] { pump_->dismiss(number_one); };
  first.say();
  second.say();

  pump_->run_once({});

  EXPECT_EQ(one_->events_.size() + two_->events_.size(), 1U);
}

TEST_F(Pump, IgnoresAnEventOfADescriptorThatWasReplacedMeanwhile) {
  const socket_pair first;
  const socket_pair second;
  const socket_pair third;
  const auto number_one = pump_->enroll(one_);
  const auto number_two = pump_->enroll(two_);
  pump_->watch(number_one, first.here.number(), EPOLLIN);
  pump_->watch(number_two, second.here.number(), EPOLLIN);
  one_->when_ready = [&] { pump_->watch(number_two, third.here.number(), EPOLLIN); };
  two_->when_ready = [&] { pump_->watch(number_one, third.here.number(), EPOLLIN); };
  first.say();
  second.say();

  pump_->run_once({});

  EXPECT_EQ(one_->events_.size() + two_->events_.size(), 1U);
}

TEST_F(Pump, KeepsASourceAliveWhileItIsTold) {
  const socket_pair pair;
  const std::weak_ptr<told> seen = one_;
  const auto number = pump_->enroll(one_);
  pump_->watch(number, pair.here.number(), EPOLLIN);
  one_->when_ready = [&, number] {
    pump_->dismiss(number);
    one_.reset();
    EXPECT_FALSE(seen.expired());
  };
  pair.say();

  pump_->run_once({});

  EXPECT_TRUE(seen.expired());
}

TEST_F(Pump, TellsWhenAnAlarmIsDue) {
  const auto number = pump_->enroll(one_);
  const time_point when = lease_clock::now() + 20ms;
  pump_->alarm(number, when);

  pump_->run_once({});
  EXPECT_TRUE(one_->times_.empty());
  pump_->run_once(time_point::max());

  ASSERT_EQ(one_->times_.size(), 1U);
  EXPECT_GE(one_->times_[0], when);
}

TEST_F(Pump, FiresAtOnceForATimeThatHasPassed) {
  const auto number = pump_->enroll(one_);

  pump_->alarm(number, time_point{});
  pump_->run_once({});

  EXPECT_EQ(one_->times_.size(), 1U);
}

TEST_F(Pump, TakesTheEarlierOfTwoAlarms) {
  const auto number = pump_->enroll(one_);

  pump_->alarm(number, lease_clock::now() + 10ms);
  pump_->alarm(number, lease_clock::now() + 1h);
  pump_->run_once(time_point::max());

  EXPECT_EQ(one_->times_.size(), 1U);
}

TEST_F(Pump, TellsEverySourceAtItsOwnTime) {
  const auto late = pump_->enroll(one_);
  const auto early = pump_->enroll(two_);
  const time_point now = lease_clock::now();
  pump_->alarm(late, now + 40ms);
  pump_->alarm(early, now + 5ms);

  pump_->run_once(time_point::max());
  EXPECT_EQ(two_->times_.size(), 1U);
  while (one_->times_.empty()) pump_->run_once(time_point::max());

  EXPECT_GE(one_->times_[0], now + 40ms);
  EXPECT_EQ(two_->times_.size(), 1U) << "an alarm rings once";
}

TEST_F(Pump, LetsAnAlarmBeSetAgainWhileItRings) {
  const auto number = pump_->enroll(one_);
  one_->when_due = [&] {
    if (one_->times_.size() < 3) pump_->alarm(number, lease_clock::now() + 1ms);
  };
  pump_->alarm(number, lease_clock::now());

  while (one_->times_.size() < 3) pump_->run_once(time_point::max());
}

TEST_F(Pump, ReturnsAtItsDeadline) {
  const time_point deadline = lease_clock::now() + 20ms;

  while (lease_clock::now() < deadline) pump_->run_once(deadline);

  EXPECT_GE(lease_clock::now(), deadline);
}

TEST_F(Pump, ReturnsWhenTheBellRings) {
  std::jthread ringer([&] { pump_->ring(); });

  pump_->run_once(time_point::max());
}

TEST_F(Pump, HasADescriptorThatIsReadableWhileThereIsWork) {
  const socket_pair pair;
  const auto number = pump_->enroll(one_);
  pump_->watch(number, pair.here.number(), EPOLLIN);
  pollfd watched{pump_->descriptor_number(), POLLIN, 0};
  EXPECT_EQ(poll(&watched, 1, 0), 0);

  pair.say();
  EXPECT_EQ(poll(&watched, 1, 5'000), 1);

  std::array<char, 8> bytes{};
  ASSERT_EQ(read(pair.here.number(), bytes.data(), bytes.size()), 1);
  EXPECT_EQ(poll(&watched, 1, 0), 0);
  pump_->alarm(number, lease_clock::now());
  EXPECT_EQ(poll(&watched, 1, 5'000), 1);
}

}  // namespace
}  // namespace sallyport::net
