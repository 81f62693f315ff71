#include "tests/kit/shifted_clock.hpp"

#include "tests/kit/redis_server.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace sallyport::kit {
namespace {

using namespace std::chrono_literals;

class ShiftedClock : public testing::Test {
 protected:
  /// What the server's clock says.
  shifted_clock::wall_time time() {
    const redis_reply reply = probe_.expect({"TIME"});
    return shifted_clock::wall_time{std::chrono::seconds{std::stoll(reply.texts().at(0))} +
                                    std::chrono::microseconds{std::stoll(reply.texts().at(1))}};
  }
  /// What is left of a key's time, -2 when it is gone.
  std::int64_t time_to_live(const std::string& key) { return probe_.expect({"PTTL", key}).integer; }

  shifted_clock clock_;
  redis_server server_{{.clock = &clock_}};
  redis_probe probe_{server_.address()};
};

TEST_F(ShiftedClock, IsTheRealOneAtFirst) {
  const auto before = clock_.now();
  const auto there = time();
  const auto after = clock_.now();

  EXPECT_LE(before, there);
  EXPECT_LE(there, after);
}

TEST_F(ShiftedClock, StepsForwardsAndKeysExpire) {
  EXPECT_TRUE(probe_.command({"SET", "a", "b", "PX", "60000"}).is_ok());
  const auto before = time();

  clock_.step(1h);

  EXPECT_GE(time() - before, 1h);
  EXPECT_LT(time() - before, 1h + 1min);
  EXPECT_EQ(time_to_live("a"), -2);
}

TEST_F(ShiftedClock, StepsBackwards) {
  const auto before = time();

  clock_.step(-1h);

  EXPECT_LT(time(), before - 59min);
}

TEST_F(ShiftedClock, StandsStillWhenFrozenAndTheServerServes) {
  const shifted_clock::wall_time noon{1'700'000'000'123'456us};
  clock_.freeze(noon);

  EXPECT_EQ(time(), noon);
  EXPECT_TRUE(probe_.command({"SET", "a", "b", "PX", "1000"}).is_ok());
  EXPECT_EQ(time_to_live("a"), 1000);
  EXPECT_EQ(time(), noon);
  clock_.step(2s);
  EXPECT_EQ(time(), noon + 2s);
  // Its timers are not those of the wall: it looks for keys to drop without being asked.
  EXPECT_TRUE(eventually([&] { return probe_.expect({"DBSIZE"}).integer == 0; }));
}

TEST_F(ShiftedClock, ExpiresKeysExactlyWhenFrozenTimePasses) {
  const shifted_clock::wall_time noon{1'700'000'000'000ms};
  clock_.freeze(noon);
  EXPECT_TRUE(probe_.command({"SET", "a", "b"}).is_ok());
  EXPECT_EQ(probe_.command({"PEXPIRE", "a", "5000"}).integer, 1);

  clock_.step(4999ms);
  EXPECT_EQ(time_to_live("a"), 1);
  clock_.step(1ms);
  EXPECT_EQ(time_to_live("a"), 0);  // Redis: a key lives through the millisecond of its end
  clock_.step(1ms);
  EXPECT_EQ(time_to_live("a"), -2);
}

TEST_F(ShiftedClock, IsRealAgainWhenReleased) {
  clock_.freeze(shifted_clock::wall_time{1'000'000'000s});
  EXPECT_EQ(time(), shifted_clock::wall_time{1'000'000'000s});

  clock_.release();

  const auto before = clock_.now();
  EXPECT_GE(time(), before);
}

TEST_F(ShiftedClock, GoesOnFromWhereItIsAfterARestart) {
  clock_.step(1h);

  server_.restart();

  redis_probe again{server_.address()};
  const auto there = std::chrono::seconds{std::stoll(again.expect({"TIME"}).texts().at(0))};
  EXPECT_GE(there, std::chrono::floor<std::chrono::seconds>(clock_.now().time_since_epoch()) - 1s);
}

}  // namespace
}  // namespace sallyport::kit
