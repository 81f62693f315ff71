#include "tests/kit/redis_server.hpp"

#include "tests/kit/redis_leftovers.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

namespace sallyport::kit {
namespace {

using namespace std::chrono_literals;

TEST(RedisServer, AnswersAndForgetsWhenKilled) {
  redis_server server;
  const auto port = server.port();
  EXPECT_TRUE(server.command({"SET", "a", "b"}).is_ok());
  EXPECT_EQ(server.command({"GET", "a"}).text, "b");

  server.kill();
  EXPECT_FALSE(server.running());
  server.start();

  EXPECT_EQ(server.port(), port);
  EXPECT_TRUE(server.command({"GET", "a"}).is_nil());
}

TEST(RedisServer, RemembersWhenItAppendsAlways) {
  redis_server server{{.persistence = redis_persistence::append_always}};
  EXPECT_TRUE(server.command({"SET", "a", "b"}).is_ok());

  server.kill();
  server.start();
  EXPECT_EQ(server.command({"GET", "a"}).text, "b");

  server.restart();
  EXPECT_EQ(server.command({"GET", "a"}).text, "b");
}

TEST(RedisServer, SavesWhenAsked) {
  redis_server server;
  EXPECT_TRUE(server.command({"SET", "a", "b"}).is_ok());

  server.stop(true);
  server.start();

  EXPECT_EQ(server.command({"GET", "a"}).text, "b");
}

TEST(RedisServer, ListensOnAUnixSocket) {
  const redis_server server{{.unix_socket = true}};

  redis_probe probe{{.port = 0, .unix_path = server.unix_path(), .user = {}, .password = {}}};

  EXPECT_EQ(probe.command({"PING"}).text, "PONG");
}

TEST(RedisServer, AsksForThePassword) {
  const redis_server server{{.password = "secret"}};
  redis_probe stranger{{.port = server.port(), .unix_path = {}, .user = {}, .password = {}}};

  EXPECT_TRUE(stranger.command({"GET", "a"}).is_error());
  EXPECT_TRUE(server.command({"GET", "a"}).is_nil());
}

TEST(RedisServer, KnowsItsUsers) {
  const redis_server server{{.users = {"user default off", "user alice on >secret ~lock:* +get"}}};
  redis_probe alice{
      {.port = server.port(), .unix_path = {}, .user = "alice", .password = "secret"}};

  EXPECT_TRUE(alice.command({"GET", "lock:a"}).is_nil());
  EXPECT_TRUE(alice.command({"GET", "other"}).is_error());
  EXPECT_TRUE(alice.command({"SET", "lock:a", "b"}).is_error());
  EXPECT_TRUE(server.command({"SET", "lock:a", "b"}).is_ok());
}

TEST(RedisServer, StandsStillWhilePaused) {
  redis_server server;
  redis_probe probe{server.address()};

  server.pause();
  probe.send({"PING"});
  EXPECT_FALSE(probe.readable(50ms));
  server.resume();

  EXPECT_EQ(probe.receive().text, "PONG");
}

TEST(RedisServer, IsStoppedAlsoWhenPaused) {
  redis_server server;
  server.pause();

  server.restart();

  EXPECT_EQ(server.command({"PING"}).text, "PONG");
}

TEST(RedisServer, FollowsAMaster) {
  const redis_server master;
  const redis_server replica{{.replica_of = master.port()}};
  redis_probe probe{replica.address()};
  ASSERT_TRUE(eventually([&] { return probe.info("master_link_status") == "up"; }));
  EXPECT_EQ(probe.info("role"), "slave");

  EXPECT_TRUE(master.command({"SET", "a", "b"}).is_ok());

  EXPECT_TRUE(eventually([&] { return probe.command({"GET", "a"}).text == "b"; }));
}

TEST(RedisServer, TakesFurtherLinesAndHasDebug) {
  const redis_server server{{.config = {"maxmemory 123mb"}}};

  const redis_reply reply = server.command({"CONFIG", "GET", "maxmemory"});

  EXPECT_EQ(reply.texts().at(1), std::to_string(123 * 1024 * 1024));
  EXPECT_TRUE(server.command({"DEBUG", "SLEEP", "0"}).is_ok());
}

TEST(RedisServer, ThatDoesNotStartTellsItsLog) {
  try {
    const redis_server server{{.config = {"no-such-setting yes"}}};
    ADD_FAILURE() << "it started";
  } catch (const kit_error& error) {
    EXPECT_NE(std::string{error.what()}.find("no-such-setting"), std::string::npos) << error.what();
  }
}

TEST(RedisProbe, ReadsEveryKindOfAnswer) {
  const redis_server server;
  redis_probe probe{server.address()};

  EXPECT_EQ(probe.command({"INCR", "n"}).integer, 1);
  EXPECT_TRUE(probe.command({"GET", "none"}).is_nil());
  EXPECT_TRUE(probe.command({"INCR"}).is_error());
  EXPECT_THROW((void)probe.expect({"INCR"}), kit_error);
  const redis_reply nested = probe.command({"EVAL", "return {1, {'a', false}}", "0"});
  EXPECT_EQ(testing::PrintToString(nested), "[1, [\"a\", nil]]");
  EXPECT_EQ(probe.command({"ECHO", std::string("a\0b", 3)}).text, std::string("a\0b", 3));
}

TEST(RedisProbe, HearsMessages) {
  const redis_server server;
  redis_probe listener{server.address()};
  EXPECT_EQ(listener.command({"SUBSCRIBE", "news"}).items.size(), 3U);

  EXPECT_EQ(server.command({"PUBLISH", "news", "hello"}).integer, 1);

  const std::vector<std::string> heard{"message", "news", "hello"};
  EXPECT_EQ(listener.receive().texts(), heard);
}

TEST(RedisProbe, ThrowsWhenTheServerIsGone) {
  redis_server server;
  redis_probe probe{server.address()};

  server.kill();

  EXPECT_THROW((void)probe.command({"PING"}), kit_error);
  EXPECT_THROW((void)server.probe(), kit_error);
}

TEST(RedisLeftovers, AreAllKeysButTokenCounters) {
  const redis_server server;
  redis_probe probe{server.address()};
  EXPECT_TRUE(leftovers(probe).empty());
  const std::string counter = std::string{"app:"} + '\x01' + "token";
  for (const std::string& key : {std::string{"b"}, std::string{"a"}, counter, counter + "{17}",
                                 counter + "s", std::string{"token"}}) {
    EXPECT_TRUE(probe.command({"SET", key, "1"}).is_ok());
  }

  const std::vector<std::string> left{"a", counter + "s", "b", "token"};
  EXPECT_EQ(leftovers(probe), left);
}

}  // namespace
}  // namespace sallyport::kit
