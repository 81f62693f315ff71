#include "backends/redis/test_live_store.hpp"

#include <cstddef>
#include <vector>

// What becomes of locks on a server whose memory is used up.
namespace sallyport::redis_live {
namespace {

/// A server that lets nobody write what takes memory, from fill() on.
class FullServer : public testing::Test {
 protected:
  [[nodiscard]] const redis_server& server() const { return server_; }
  [[nodiscard]] client open_here() const { return open(server_.port()); }
  void fill() const { server_.command({"CONFIG", "SET", "maxmemory", "1"}); }
  void empty() const { server_.command({"CONFIG", "SET", "maxmemory", "0"}); }
  /// Ends all connections but those that ask for it.
  void cut_off_everybody() const { server_.command({"CLIENT", "KILL", "TYPE", "NORMAL"}); }

  static constexpr std::chrono::milliseconds lease_length{2s};

 private:
  redis_server server_{{.config = {"maxmemory-policy noeviction"}}};
};

/// Waits until all were renewed for a whole lease beyond the present one.
testing::AssertionResult stay_alive(const std::vector<const lease*>& all) {
  std::vector<lease_clock::time_point> deadlines;
  deadlines.reserve(all.size());
  for (const lease* each : all) deadlines.push_back(each->deadline());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const lease& one = *all[i];
    const auto settled = [&] {
      return one.deadline() >= deadlines[i] + one.length() || !one.valid();
    };
    if (!eventually(settled) || !one.valid()) {
      return testing::AssertionFailure() << "lease " << i << " is " << to_string(one.state());
    }
  }
  return testing::AssertionSuccess();
}
testing::AssertionResult stays_alive(const lease& held) { return stay_alive({&held}); }

TEST_F(FullServer, SaysUnavailableAndNotHeld) {
  mutex lock{open(server().port(), {.request_timeout = 500ms, .store_patience = 500ms}), "door"};
  fill();

  const told error = error_of([&] { static_cast<void>(lock.try_acquire()); });
  EXPECT_EQ(error.code, errc::unavailable) << error.text;
  EXPECT_TRUE(error.says("OOM")) << error.text;

  empty();
  EXPECT_TRUE(lock.try_acquire());
}

TEST_F(FullServer, KeepsALeaseWhoseLocalWaitersBecomeMore) {
  mutex lock{open_here(),
             "door",
             {.lease_length = lease_length, .local_turns = 8, .local_turn_time = 60s}};
  auto held = lock.acquire();
  fill();

  waiter next(lock);
  ASSERT_TRUE(stays_alive(held));

  EXPECT_EQ(held.release(), release_result::released);
  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_TRUE(stays_alive(*got));
  EXPECT_EQ(got->release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(server()));
}

TEST_F(FullServer, HandsALockOverForGood) {
  mutex held_lock{open_here(), "door", lasting(lease_length)};
  mutex wanted_lock{open_here(), "door", lasting(lease_length)};
  auto held = held_lock.acquire();
  waiter next(wanted_lock);
  ASSERT_TRUE(waiters_become(server(), "door", 1));
  fill();

  EXPECT_EQ(held.release(), release_result::released);

  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_TRUE(stays_alive(*got)) << "its claim was refused";
  EXPECT_EQ(got->release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(server()));
}

TEST_F(FullServer, KeepsReadersWritersPermitsAndLeaders) {
  const auto store = open_here();
  shared_mutex book{store, "book", lasting(lease_length)};
  shared_mutex page{store, "page", lasting(lease_length)};
  semaphore pool{store, "pool", 3, lasting(lease_length)};
  election race{store, "throne", lasting(lease_length)};
  std::vector<lease> all;
  all.push_back(book.acquire_shared());
  all.push_back(book.acquire_shared());
  all.push_back(page.acquire());
  all.push_back(pool.acquire());
  all.push_back(pool.acquire());
  all.push_back(race.campaign("me"));
  fill();

  std::vector<const lease*> each_of_them;
  each_of_them.reserve(all.size());
  for (const lease& each : all) each_of_them.push_back(&each);
  EXPECT_TRUE(stay_alive(each_of_them));

  // By now all of them have lasted longer than the store had noted at first.
  all[2].downgrade();
  EXPECT_TRUE(stays_alive(all[2]));
  for (lease& each : all) EXPECT_EQ(each.release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(server()));
}

TEST_F(FullServer, LetsItsClientsComeBack) {
  const auto store = open_here();
  mutex lock{store, "door", lasting(lease_length)};
  shared_mutex book{store, "book", lasting(lease_length)};
  auto held = lock.acquire();
  auto reader = book.acquire_shared();
  fill();

  cut_off_everybody();
  EXPECT_TRUE(stay_alive({&held, &reader}));
  cut_off_everybody();

  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_EQ(reader.release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(server()));
  EXPECT_EQ(server().command({"PTTL", "\1token"}).integer, -1) << "the counter stays for ever";
}

TEST_F(FullServer, LetsAClientComeBackAlthoughItHasForgottenTheCounter) {
  mutex lock{open_here(), "door", lasting(lease_length)};
  auto held = lock.acquire();
  const auto token = held.token();
  server().command({"DEL", "\1token"});
  fill();

  cut_off_everybody();

  EXPECT_TRUE(stays_alive(held));
  EXPECT_EQ(held.release(), release_result::released);
  empty();
  EXPECT_GT(lock.acquire().token(), token);
}

TEST_F(FullServer, LetsALockBeBroken) {
  const auto store = open_here();
  mutex lock{store, "door", lasting(lease_length)};
  shared_mutex book{store, "book", lasting(lease_length)};
  auto held = lock.acquire();
  auto writer = book.acquire();
  fill();

  store.break_lock("door", held.token());
  store.break_lock("book", writer.token());

  EXPECT_TRUE(becomes_lost(held));
  EXPECT_TRUE(becomes_lost(writer));
}

TEST(Eviction, IsWarnedOf) {
  const redis_server server{{.config = {"maxmemory 100mb", "maxmemory-policy allkeys-lru"}}};
  const auto store = open(server.port());
  std::string all;
  for (const std::string& each : store.capabilities().caveats) all += each + "\n";
  EXPECT_NE(all.find("allkeys-lru"), std::string::npos) << all;
  EXPECT_NE(all.find("noeviction"), std::string::npos) << all;
}

}  // namespace
}  // namespace sallyport::redis_live
