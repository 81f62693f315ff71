#include "backends/sql/test_live_store.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

// Tokens grow, and a crash of the server forgets nobody.
namespace sallyport::sql_live {
namespace {

TEST(Tokens, GrowForEveryoneWhoEnters) {
  const auto server = start_server();
  std::vector<std::unique_ptr<background<std::vector<std::uint64_t>>>> all;
  std::vector<std::uint64_t> order;
  all.reserve(4);
  for (int i = 0; i < 4; ++i) {
    all.push_back(std::make_unique<background<std::vector<std::uint64_t>>>([&] {
      mutex lock{open(server->address()), "door", lasting()};
      std::vector<std::uint64_t> mine;
      for (int turn = 0; turn < 25; ++turn) {
        auto held = lock.acquire();
        order.push_back(held.token().value());  // guarded by the lock itself
        mine.push_back(held.token().value());
      }
      return mine;
    }));
  }
  for (auto& each : all) EXPECT_EQ(each->get().size(), 25U);

  EXPECT_EQ(order.size(), 100U);
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_EQ(std::ranges::adjacent_find(order), order.end());
  EXPECT_TRUE(nothing_is_left(*server));
}

TEST(AfterACrash, LocksAndPlacesAreStillThere) {
  const auto server = start_server();
  mutex held_lock{open(server->address()), "door", lasting()};
  mutex wanted_lock{open(server->address()), "door", lasting()};
  auto held = held_lock.acquire();
  waiter next(wanted_lock);
  ASSERT_TRUE(waiters_become(*server, 1));

  server->kill();
  server->start();

  EXPECT_EQ(server->value("SELECT COUNT(*) FROM " + table("lock")), "1");
  mutex other{open(server->address()), "door", lasting()};
  EXPECT_FALSE(other.try_acquire());
  EXPECT_TRUE(held.valid());
  const auto token = held.token();
  EXPECT_EQ(held.release(), release_result::released);
  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_GT(got->token(), token);
  got->release();
  EXPECT_TRUE(nothing_is_left(*server));
}

}  // namespace
}  // namespace sallyport::sql_live
