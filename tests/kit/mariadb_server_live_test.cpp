#include "tests/kit/mariadb_server.hpp"

#include "tests/kit/shifted_clock.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace sallyport::kit {
namespace {

TEST(MariadbServer, KeepsWhatWasCommittedOverStopAndKill) {
  mariadb_server server;
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

TEST(MariadbServer, TellsErrorsAndWaitsForResults) {
  const mariadb_server server;
  mariadb_probe one{{.port = server.port()}};
  mariadb_probe other{{.port = server.port()}};

  EXPECT_THROW(one.rows("SELECT nonsense"), kit_error);
  EXPECT_EQ(one.value("SELECT GET_LOCK('a', 10)"), "1");
  other.begin("SELECT GET_LOCK('a', 10)");
  one.rows("SELECT RELEASE_LOCK('a')");
  EXPECT_EQ(other.result(), (sql_rows{{"1"}}));
  EXPECT_THROW((mariadb_probe{{.port = 1}}), kit_error);
}

TEST(MariadbServer, StandsStillAndHasAClockOfItsOwn) {
  shifted_clock clock;
  mariadb_server server{{.clock = &clock}};
  mariadb_probe probe{{.port = server.port()}};

  clock.step(std::chrono::hours{100});
  EXPECT_EQ(probe.value("SELECT UNIX_TIMESTAMP(SYSDATE(6)) > " +
                        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(
                                           clock.now().time_since_epoch())
                                           .count() -
                                       3600)),
            "1");
  server.pause();
  probe.begin("SELECT 7");
  server.resume();
  EXPECT_EQ(probe.result(), (sql_rows{{"7"}}));
}

}  // namespace
}  // namespace sallyport::kit
