#include "backends/mariadb/test_live_store.hpp"

#include <chrono>
#include <string>

// What clients cost that wait for long.
namespace sallyport::mariadb_live {
namespace {

TEST(LongWait, IsNotPolledForEver) {
  const mariadb_server server;
  mutex lock{open(server.address()), "door", lasting()};
  mutex wanted{open(server.address()), "door", lasting()};
  auto held = lock.acquire();
  waiter next(wanted);
  ASSERT_TRUE(waiters_become(server, 1));
  const auto asked = [&] {
    return std::stoi(server.rows("SHOW GLOBAL STATUS LIKE 'Com_call_procedure'").front()[1]);
  };
  const auto wait = [](std::chrono::milliseconds length) {
    const auto until = lease_clock::now() + length;
    EXPECT_TRUE(eventually([&] { return lease_clock::now() >= until; }));
  };
  wait(3s);

  const auto written = [&] {
    return server.rows("SHOW GLOBAL STATUS LIKE 'Handler_update'").front()[1];
  };
  const int before = asked();
  const std::string written_before = written();
  wait(1s);

  // Every 3000 / 32 ms, times 0.5 to 1; and a heartbeat.
  EXPECT_LE(asked() - before, 40);
  EXPECT_LE(std::stoi(written()) - std::stoi(written_before), 3) << "asking writes";
  held.release();
  EXPECT_TRUE(next.get());
}

}  // namespace
}  // namespace sallyport::mariadb_live
