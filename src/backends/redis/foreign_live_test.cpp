#include "backends/redis/test_live_store.hpp"

#include <vector>

// Keys under a lock's name that others made: clients of other libraries, and mistakes.
namespace sallyport::redis_live {
namespace {

/// Whether the head of the queue noticed within its asking interval.
constexpr auto head_asks_every = 250ms;
constexpr auto machine_may_add = 750ms;

class Foreign : public testing::Test {
 protected:
  redis_server server_;
  const client store_ = open(server_.port(), {.label = "test"});  // the usual heartbeat: 1 s
  mutex lock_{store_, "door", lasting()};
};

TEST_F(Foreign, HolderWithAnEndIsHeldAndThenEntered) {
  ASSERT_TRUE(server_.command({"SET", "door", "theirs", "NX", "PX", "1500"}).is_ok());
  EXPECT_FALSE(lock_.try_acquire());
  const auto set = lease_clock::now();

  auto got = lock_.acquire();

  EXPECT_GE(lease_clock::now() - set, 1000ms);
  EXPECT_LT(lease_clock::now() - set, 1500ms + head_asks_every + machine_may_add);
  EXPECT_TRUE(got.valid());
  got.release();
  EXPECT_TRUE(nothing_is_left(server_));
}

TEST_F(Foreign, HolderIsKeptOutByUs) {
  auto got = lock_.acquire();
  EXPECT_TRUE(server_.command({"SET", "door", "theirs", "NX", "PX", "1500"}).is_nil());
  got.release();
  EXPECT_TRUE(server_.command({"SET", "door", "theirs", "NX", "PX", "1500"}).is_ok());
}

TEST_F(Foreign, HolderWithoutAnEndIsEnteredSoonAfterItLeaves) {
  ASSERT_TRUE(server_.command({"SET", "door", "theirs"}).is_ok());
  waiter next(lock_);
  ASSERT_TRUE(waiters_become(server_, "door", 1));

  server_.command({"DEL", "door"});  // nobody is told
  const auto left = lease_clock::now();

  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_LT(lease_clock::now() - left, head_asks_every + machine_may_add);
}

TEST_F(Foreign, HolderIsWatchedByTheHeadOfTheQueueOnly) {
  ASSERT_TRUE(server_.command({"SET", "door", "theirs"}).is_ok());
  std::vector<waiter> waiters;
  for (int i = 0; i < 10; ++i) {
    waiters.emplace_back(lock_);
    ASSERT_TRUE(waiters_become(server_, "door", i + 1));
  }
  const auto asked = [&] { return calls_of(server_, "evalsha"); };
  const auto before = asked();
  const auto began = lease_clock::now();

  ASSERT_TRUE(eventually([&] { return lease_clock::now() - began >= 2s; }));
  const auto questions = asked() - before;

  // The head every 50 to 250 ms, that is at most 40 times and on average 14; nine others once a
  // heartbeat of 1 s. If all ten asked as the head does, there would be more than 80.
  const std::chrono::duration<double> took = lease_clock::now() - began;
  EXPECT_GE(static_cast<double>(questions), 8);
  EXPECT_LE(static_cast<double>(questions), (20 + 9) * took.count() + 10);
  for (waiter& each : waiters) each.cancel();
  for (waiter& each : waiters) EXPECT_FALSE(each.get());
  server_.command({"DEL", "door"});
  EXPECT_TRUE(nothing_is_left(server_));
}

TEST_F(Foreign, HolderIsShownButHasNoToken) {
  server_.command({"SET", "door", "theirs", "PX", "60000"});
  const auto seen = store_.who("door");
  ASSERT_TRUE(seen);
  ASSERT_EQ(seen->holders.size(), 1U);
  EXPECT_EQ(error_of([&] { store_.break_lock("door", fencing_token(1)); }).code,
            errc::not_supported);
  EXPECT_EQ(server_.command({"GET", "door"}).text, "theirs");
}

/// Other libraries keep locks in other types.
class ForeignType : public Foreign, public testing::WithParamInterface<kit::redis_probe::words> {};

TEST_P(ForeignType, IsHeldAndNotBroken) {
  ASSERT_FALSE(server_.command(GetParam()).is_error());

  EXPECT_FALSE(lock_.try_acquire());
  shared_mutex readers{store_, "door", lasting()};
  semaphore permits{store_, "door", 3, lasting()};
  EXPECT_FALSE(readers.try_acquire_shared());
  EXPECT_FALSE(readers.try_acquire());
  EXPECT_FALSE(permits.try_acquire());
  EXPECT_FALSE(lock_.try_acquire_for(300ms));
  EXPECT_TRUE(store_.who("door"));
  EXPECT_EQ(server_.command({"EXISTS", "door"}).integer, 1);

  server_.command({"DEL", "door"});
  EXPECT_TRUE(lock_.try_acquire_for(patience));
  EXPECT_TRUE(nothing_is_left(server_));
}

INSTANTIATE_TEST_SUITE_P(
    Types, ForeignType,
    testing::Values(kit::redis_probe::words{"HSET", "door", "8743c9c0-4b07:1", "1"},  // Redisson
                    kit::redis_probe::words{"RPUSH", "door", "theirs"},
                    kit::redis_probe::words{"SADD", "door", "theirs"},
                    kit::redis_probe::words{"ZADD", "door", "1", "theirs"},  // Redis in Action
                    kit::redis_probe::words{"XADD", "door", "*", "who", "they"},
                    kit::redis_probe::words{"SET", "door", ""},
                    kit::redis_probe::words{"SET", "door", "sp1"}),
    [](const auto& each) { return each.param[0] + std::to_string(each.index); });

/// Somebody wrote to a key that is ours.
class SpoiledKey : public Foreign, public testing::WithParamInterface<std::string> {};

TEST_P(SpoiledKey, IsAClearErrorAndHurtsNoOtherName) {
  const std::string key = GetParam() == "token" ? "\1token" : "door\1" + GetParam();
  mutex other{open(server_.port()), "window", lasting()};
  // As strings, and as something that no script expects.
  for (const kit::redis_probe::words& spoil : {kit::redis_probe::words{"SET", key, "spoiled"},
                                               kit::redis_probe::words{"RPUSH", key, "spoiled"}}) {
    server_.command({"DEL", key});
    ASSERT_FALSE(server_.command(spoil).is_error());
    server_.command({"SET", "door", "theirs", "PX", "2000"});

    const told error = error_of([&] { static_cast<void>(lock_.try_acquire_for(300ms)); });

    if (error.code) {
      EXPECT_EQ(error.code, errc::store_refused) << error.text;
      EXPECT_FALSE(error.text.empty());
    }
    if (GetParam() != "token") {
      EXPECT_TRUE(other.try_acquire());
    }
    static_cast<void>(error_of([&] { static_cast<void>(store_.who("door")); }));
    static_cast<void>(error_of([&] { static_cast<void>(store_.list()); }));
  }
  server_.command({"DEL", key, "door"});
  EXPECT_TRUE(lock_.try_acquire_for(patience));
}

TEST_P(SpoiledKey, UnderAHolderDoesNotKeepItFromLeavingForEver) {
  if (GetParam() == "token") return;  // leaving draws no token unless somebody waits
  auto held = lock_.acquire();
  server_.command({"SET", "door\1" + GetParam(), "spoiled"});

  static_cast<void>(held.release());
  server_.command({"DEL", "door\1" + GetParam()});

  EXPECT_TRUE(nothing_is_left(server_));
}

INSTANTIATE_TEST_SUITE_P(Keys, SpoiledKey, testing::Values("queue", "waiters", "absent", "token"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace sallyport::redis_live
