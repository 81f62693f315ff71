#include "tests/kit/redis_server.hpp"
#include "tests/kit/shifted_clock.hpp"
#include <sallyport/client.hpp>
#include <sallyport/mutex.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace sallyport {
namespace {

using namespace std::chrono_literals;

std::string address_of(const kit::redis_server& server) {
  return "redis://127.0.0.1:" + std::to_string(server.port());
}

/// Takes and gives back the lock, so often, and keeps the tokens.
void draw_tokens(const client& from, int often, std::vector<fencing_token>& tokens) {
  mutex lock{from, "name"};
  for (int i = 0; i < often; ++i) tokens.push_back(lock.acquire().token());
}

void expect_growing(const std::vector<fencing_token>& tokens) {
  for (std::size_t i = 1; i < tokens.size(); ++i) EXPECT_LT(tokens[i - 1], tokens[i]) << i;
}

TEST(RedisTokens, GrowWhenAllKeysAreGone) {
  const kit::redis_server server;
  const auto client = client::open(address_of(server));
  std::vector<fencing_token> tokens;

  draw_tokens(client, 3, tokens);
  server.command({"FLUSHALL"});
  draw_tokens(client, 3, tokens);

  expect_growing(tokens);
}

TEST(RedisTokens, GrowOnAServerThatRemembersNothing) {
  kit::redis_server server;
  std::vector<fencing_token> tokens;

  draw_tokens(client::open(address_of(server)), 3, tokens);
  server.kill();
  server.start();
  draw_tokens(client::open(address_of(server)), 3, tokens);

  expect_growing(tokens);
}

TEST(RedisTokens, GrowOnAServerWhoseClockStandsStillInThePast) {
  kit::shifted_clock clock;
  clock.freeze(std::chrono::sys_days{std::chrono::year{1971} / 1 / 1});
  const kit::redis_server server{{.clock = &clock}};
  const auto client = client::open(address_of(server));
  std::vector<fencing_token> tokens;

  draw_tokens(client, 3, tokens);
  server.command({"FLUSHALL"});
  draw_tokens(client, 3, tokens);

  // Lost together with the clock's progress they begin anew; what may not be is one token twice.
  EXPECT_LT(tokens[0], tokens[1]);
  EXPECT_LT(tokens[1], tokens[2]);
  EXPECT_LT(tokens[3], tokens[4]);
  EXPECT_LT(tokens[4], tokens[5]);
}

TEST(RedisTokens, AreNotDrawnByTriesThatFindTheLockHeld) {
  const kit::redis_server server;
  const auto client = client::open(address_of(server));
  mutex lock{client, "name"};
  mutex same{client::open(address_of(server)), "name"};
  const auto held = lock.acquire();
  const std::string before = server.command({"GET", "\x01token"}).text;

  for (int i = 0; i < 5; ++i) EXPECT_FALSE(same.try_acquire());

  EXPECT_EQ(server.command({"GET", "\x01token"}).text, before);
}

}  // namespace
}  // namespace sallyport
