#include "tests/kit/postgres_server.hpp"

#include "tests/kit/shifted_clock.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace sallyport::kit {
namespace {

TEST(PostgresServer, KeepsWhatWasCommittedOverStopAndKill) {
  postgres_server server;
  server.rows("CREATE TABLE kept (n integer)");

  server.rows("INSERT INTO kept VALUES (1)");
  server.stop();
  EXPECT_FALSE(server.running());
  server.start();
  server.rows("INSERT INTO kept VALUES (2)");
  server.kill();
  EXPECT_FALSE(server.running());
  server.start();

  EXPECT_EQ(server.rows("SELECT n FROM kept ORDER BY n"), (sql_rows{{"1"}, {"2"}}));
}

TEST(PostgresServer, TellsErrorsAndWaitsForResults) {
  const postgres_server server;
  postgres_probe one{server.address()};
  postgres_probe other{server.address()};

  EXPECT_THROW(one.rows("SELECT nonsense"), kit_error);
  one.rows("BEGIN; SELECT pg_advisory_xact_lock(1)");
  other.begin("SELECT pg_advisory_xact_lock(1)");
  one.rows("COMMIT");
  EXPECT_EQ(other.result().size(), 1U);
  EXPECT_THROW(postgres_probe{"postgres://127.0.0.1:1/nowhere"}, kit_error);
}

TEST(PostgresServer, StandsStillAndHasAClockOfItsOwn) {
  shifted_clock clock;
  postgres_server server{{.clock = &clock}};
  postgres_probe probe{server.address()};

  clock.step(std::chrono::hours{100});
  EXPECT_EQ(probe.value("SELECT clock_timestamp() > to_timestamp(" +
                        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(
                                           clock.now().time_since_epoch())
                                           .count() -
                                       3600) +
                        ")"),
            "t");
  server.pause();
  probe.begin("SELECT 7");
  server.resume();
  EXPECT_EQ(probe.result(), (sql_rows{{"7"}}));
}

TEST(Pgbouncer, HandsOutTransactions) {
  const postgres_server server;
  const pgbouncer pooler{server, "transaction", 1};
  postgres_probe one{pooler.address()};
  postgres_probe other{pooler.address()};

  EXPECT_EQ(one.value("SELECT pg_backend_pid()"), other.value("SELECT pg_backend_pid()"));
  EXPECT_NE(std::to_string(one.process()), one.value("SELECT pg_backend_pid()"));
}

}  // namespace
}  // namespace sallyport::kit
