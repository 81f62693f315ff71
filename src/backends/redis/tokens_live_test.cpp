#include "tests/kit/redis_server.hpp"
#include "tests/kit/shifted_clock.hpp"
#include <sallyport/client.hpp>
#include <sallyport/mutex.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace sallyport {
namespace {

using namespace std::chrono_literals;

std::string address_of(const kit::redis_server& server) {
  return "redis://127.0.0.1:" + std::to_string(server.port());
}

/// Takes and gives back the lock, so often, and keeps the tokens.
void draw_tokens(const client& from, int often, std::vector<fencing_token>& tokens,
                 std::uint32_t local_turns = lock_options{}.local_turns) {
  mutex lock{from, "name", {.local_turns = local_turns}};
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

/// How far a server's counter is above its clock x 1,024.
std::int64_t ahead_of_clock(const kit::redis_server& server) {
  const std::int64_t counter = std::stoll(server.command({"GET", "\x01token"}).text);
  const auto time = server.command({"TIME"}).texts();
  return counter - (std::stoll(time.at(0)) * 1000 + std::stoll(time.at(1)) / 1000) * 1024;
}

class RedisTokensOfBlocks : public testing::TestWithParam<std::uint32_t> {};

TEST_P(RedisTokensOfBlocks, GrowAfterALossHoweverFastTheyWereDrawn) {
  const kit::redis_server server;
  const auto client = client::open(address_of(server));
  std::vector<fencing_token> tokens;

  for (int loss = 0; loss < 4; ++loss) {
    draw_tokens(client, 500, tokens, GetParam());
    EXPECT_LT(ahead_of_clock(server), 0);
    server.command({"FLUSHALL"});
  }
  draw_tokens(client, 1, tokens, GetParam());

  expect_growing(tokens);
}

TEST_P(RedisTokensOfBlocks, GrowWhenThreadsOfSeveralClientsTakeTurns) {
  constexpr int clients = 3;
  constexpr int threads_each = 3;
  const kit::redis_server server;
  std::vector<fencing_token> tokens;  // guarded by the lock
  const auto take_turns = [&] {
    std::vector<std::jthread> threads;
    for (int i = 0; i < clients; ++i) {
      const auto lock = std::make_shared<mutex>(client::open(address_of(server)), "name",
                                                lock_options{.local_turns = GetParam()});
      for (int j = 0; j < threads_each; ++j) {
        threads.emplace_back([lock, &tokens] {
          for (int turn = 0; turn < 100; ++turn) {
            const auto held = lock->acquire();
            tokens.push_back(held.token());
          }
        });
      }
    }
  };

  take_turns();
  EXPECT_LT(ahead_of_clock(server), 0);
  server.command({"FLUSHALL"});
  take_turns();

  EXPECT_EQ(tokens.size(), 2U * clients * threads_each * 100);
  expect_growing(tokens);
}

INSTANTIATE_TEST_SUITE_P(LocalTurns, RedisTokensOfBlocks, testing::Values(1, 16, 1000, 1'000'000),
                         [](const auto& shown) { return std::to_string(shown.param); });

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
