#include "backends/postgres/test_live_store.hpp"

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>

// Tokens are drawn by whoever has the name, and do not come again after a crash.
namespace sallyport::postgres_live {
namespace {

TEST(Tokens, AreDrawnByTheOneWhoHasTheNameAndNotBefore) {
  const postgres_server server;
  const auto first = open(server.address());
  const auto second = open(server.address());
  mutex one{first, "door", lasting()};
  mutex other{second, "window", lasting()};
  one.acquire().release();
  const auto drawn = [&] { return server.value("SELECT last_value FROM sallyport.token"); };
  const std::string before = drawn();
  // Somebody has the name when the first one comes: it waits inside of its statement.
  postgres_probe holder{server.address()};
  holder.rows("BEGIN; SELECT pg_advisory_xact_lock(sallyport.name_key('door'))");

  background<std::optional<lease>> blocked([&] { return std::optional<lease>(one.acquire()); });
  ASSERT_TRUE(kit::eventually([&] {
    return server.value(
               "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == "1";
  }));

  EXPECT_EQ(drawn(), before) << "a token was drawn before the name was had";
  auto window = other.acquire();
  const auto between = window.token();
  holder.rows("COMMIT");
  auto late = blocked.get();
  ASSERT_TRUE(late);
  EXPECT_GT(late->token(), between) << "it was granted later, and its token says earlier";
}

class AfterACrash : public testing::TestWithParam<const char*> {};

TEST_P(AfterACrash, TokensDoNotComeAgain) {
  // What is not waited for stays in memory. A sequence is logged 32 numbers ahead: draw more.
  postgres_server server{{.settings = {"wal_writer_delay=10s"}}};
  const std::string address = server.address() + GetParam();
  constexpr int draws = 70;
  std::uint64_t largest = 0;
  for (int round = 0; round < 3; ++round) {
    mutex lock{open(address), "door", lasting(300ms)};
    for (int i = 0; i < draws; ++i) {
      auto held = lock.acquire();
      ASSERT_GT(held.token().value(), largest) << "round " << round << ", draw " << i;
      largest = held.token().value();
      if (i + 1 < draws) continue;
      // Right after the grant.
      server.kill();
      server.start();
    }
  }
}

TEST_P(AfterACrash, OfOneOfItsProcessesTokensDoNotComeAgain) {
  const postgres_server server;
  const std::string address = server.address() + GetParam();
  mutex lock{open(address), "door", lasting(300ms)};
  auto held = lock.acquire();
  const auto largest = held.token();

  // The server kills all others, and replays its log, but does not restart.
  ::kill(
      std::stoi(server.value("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")),
      SIGKILL);
  ASSERT_TRUE(
      kit::eventually([&] { return server.value("SELECT count(*) FROM sallyport.alive") == "0"; }));

  held.release();
  auto again = lock.acquire();
  EXPECT_GT(again.token(), largest);
}

INSTANTIATE_TEST_SUITE_P(Either, AfterACrash, testing::Values("", "?durable=no"),
                         [](const auto& one) {
                           return std::string(one.param).empty() ? "Durable" : "Relaxed";
                         });

TEST(WithoutDurability, TheEndOfTheTokensIsOnRecordBeforeTheyAreUsed) {
  const postgres_server server;
  mutex lock{open(server.address() + "?durable=no"), "door", lasting()};

  for (int i = 0; i < 3; ++i) lock.acquire().release();

  EXPECT_EQ(server.value("SELECT reserved > (SELECT last_value FROM sallyport.token) FROM "
                         "sallyport.state"),
            "t");
}

}  // namespace
}  // namespace sallyport::postgres_live
