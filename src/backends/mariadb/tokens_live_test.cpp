#include "backends/mariadb/test_live_store.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// Tokens are drawn by whoever has the name, and do not come again after a crash.
namespace sallyport::mariadb_live {
namespace {

TEST(Tokens, AreDrawnByTheOneWhoHasTheNameAndNotBefore) {
  const mariadb_server server;
  const auto first = open(server.address());
  mutex one{first, "door", lasting()};
  one.acquire().release();
  const auto drawn = [&] { return server.value("SELECT SUM(token) FROM sallyport_stripe"); };
  const std::string before = drawn();
  // Somebody has the name when the first one comes: it waits inside of its call.
  mariadb_probe holder{{.port = server.port()}};
  holder.rows("START TRANSACTION");
  holder.rows("SELECT * FROM sallyport_stripe WHERE id = " + stripe_of("door") + " FOR UPDATE");

  background<std::optional<lease>> blocked([&] { return std::optional<lease>(one.acquire()); });
  ASSERT_TRUE(row_is_waited_for(server));

  EXPECT_EQ(drawn(), before) << "a token was drawn before the name was had";
  // Somebody else is granted before it, and draws.
  holder.rows("UPDATE sallyport_stripe SET token = token + 1024 WHERE id = " + stripe_of("door"));
  const auto between = std::stoull(
      holder.value("SELECT token FROM sallyport_stripe WHERE id = " + stripe_of("door")));
  holder.rows("COMMIT");
  auto late = blocked.get();
  ASSERT_TRUE(late);
  EXPECT_GT(late->token().value(), between) << "it was granted later, and its token says earlier";
}

TEST(Tokens, OfOtherNamesAreNotWaitedFor) {
  const mariadb_server server;
  const auto store = open(server.address());
  mutex window{store, "window", lasting()};
  mariadb_probe holder{{.port = server.port()}};
  holder.rows("START TRANSACTION");
  holder.rows("SELECT * FROM sallyport_stripe WHERE id = " + stripe_of("door") + " FOR UPDATE");
  ASSERT_NE(server.value("SELECT " + stripe_of("door")),
            server.value("SELECT " + stripe_of("window")));

  auto held = window.try_acquire();

  ASSERT_TRUE(held);
  EXPECT_EQ(held->release(), release_result::released);
  holder.rows("COMMIT");
}

TEST(AfterACrash, TokensDoNotComeAgain) {
  mariadb_server server;
  std::uint64_t largest = 0;
  for (int round = 0; round < 3; ++round) {
    mutex lock{open(server.address()), "door", lasting(300ms)};
    for (int i = 0; i < 5; ++i) {
      auto held = lock.acquire();
      ASSERT_GT(held.token().value(), largest) << "round " << round << ", draw " << i;
      largest = held.token().value();
      if (i < 4) continue;
      // Right after the grant.
      server.kill();
      server.start();
    }
  }
}

TEST(Durability, IsClaimedOnlyWhereTheServerFlushes) {
  const mariadb_server server;
  const auto says = [](const client& store, std::string_view what) {
    return std::ranges::any_of(store.capabilities().caveats, [&](const std::string& each) {
      return each.find(what) != std::string::npos;
    });
  };
  const auto strict = open(server.address());
  server.rows("SET GLOBAL innodb_flush_log_at_trx_commit = 2");
  const auto relaxed = open(server.address());
  server.rows("SET GLOBAL innodb_flush_log_at_trx_commit = 0");
  const auto careless = open(server.address());

  EXPECT_TRUE(strict.capabilities().survives_store_restart);
  EXPECT_FALSE(says(strict, "innodb_flush_log_at_trx_commit"));
  EXPECT_FALSE(relaxed.capabilities().survives_store_restart);
  EXPECT_TRUE(says(relaxed, "survives a crash of the server"));
  EXPECT_FALSE(careless.capabilities().survives_store_restart);
  EXPECT_TRUE(says(careless, "forgets what was committed in the last second"));
}

}  // namespace
}  // namespace sallyport::mariadb_live
