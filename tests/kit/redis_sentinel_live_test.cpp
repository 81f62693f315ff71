#include "tests/kit/redis_sentinel.hpp"

#include <gtest/gtest.h>

namespace sallyport::kit {
namespace {

TEST(RedisSentinel, AgreesOnTheMasterAndOnAnotherWhenItIsKilled) {
  redis_sentinel_group group;
  const std::uint16_t first = group.current_master_port();
  EXPECT_EQ(first, group.server(0).port());
  EXPECT_EQ(group.sentinel_ports().size(), 3U);
  EXPECT_EQ(group.servers(), 3U);

  redis_server& old = group.fail_over(redis_sentinel_group::how::kill);
  EXPECT_EQ(old.port(), first);
  EXPECT_NE(group.current_master_port(), first);
  EXPECT_TRUE(group.master().command({"SET", "a", "b"}).is_ok());

  old.start();
  group.wait_until_settled();
  EXPECT_EQ(old.command({"GET", "a"}).text, "b");

  const std::uint16_t second = group.current_master_port();
  for (std::size_t i = 0; i < group.sentinels(); ++i) group.sentinel(i).restart();
  EXPECT_EQ(group.current_master_port(), second) << group.log_tails();
}

TEST(RedisSentinel, LeavesAPausedMasterBehind) {
  redis_sentinel_group group{
      {.replicas = 1, .server = {.password = "secret", .master_password = "secret"}}};

  redis_server& old = group.fail_over(redis_sentinel_group::how::pause);

  EXPECT_NE(group.current_master_port(), old.port());
  old.resume();
  group.wait_until_replica(old);
}

}  // namespace
}  // namespace sallyport::kit
