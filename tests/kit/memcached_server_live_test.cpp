#include "tests/kit/memcached_server.hpp"

#include "tests/kit/certificates.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace sallyport::kit {
namespace {

TEST(MemcachedServer, AnswersAndForgetsWhenKilled) {
  memcached_server server;
  const auto port = server.port();
  EXPECT_EQ(server.probe()->ask("set a 0 0 1\r\nx"), "STORED");
  EXPECT_EQ(server.keys(), std::vector<std::string>{"a"});
  EXPECT_EQ(server.stat("cmd_set"), 1U);

  server.restart();

  EXPECT_EQ(server.port(), port);
  EXPECT_TRUE(server.keys().empty());
}

TEST(MemcachedServer, StandsStillAndGoesOn) {
  memcached_server server;
  const auto probe = server.probe();
  server.pause();
  probe->set_patience(std::chrono::milliseconds{100});
  EXPECT_THROW(static_cast<void>(probe->ask("version")), kit_error);
  server.resume();
  probe->set_patience(patience);
  EXPECT_TRUE(probe->line().starts_with("VERSION"));
}

TEST(MemcachedServer, MayListenOnAUnixSocketAndAskForALogin) {
  const memcached_server server{{.unix_socket = true, .login = "me:secret"}};
  EXPECT_TRUE(server.probe()->ask("version").starts_with("VERSION"));
  memcached_probe stranger{server.unix_path()};
  EXPECT_EQ(stranger.ask("version"), "CLIENT_ERROR unauthenticated");
}

TEST(MemcachedServer, MaySpeakTls) {
  const certificates files;
  const memcached_server server{{.tls = memcached_tls{.certificate = files.server.certificate,
                                                      .key = files.server.key,
                                                      .authority = files.authority}}};
  EXPECT_TRUE(server.probe()->ask("version").starts_with("VERSION"));
}

}  // namespace
}  // namespace sallyport::kit
