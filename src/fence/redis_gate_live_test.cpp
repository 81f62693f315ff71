#include "base/random.hpp"
#include "fence/gate_testing.hpp"
#include "fence/test_rebinding.hpp"
#include "tests/kit/redis_server.hpp"
#include <sallyport/error.hpp>
#include <sallyport/fence_redis.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace sallyport::fence {
namespace {

using words = redis_gate::words;
using kind = kit::redis_reply::kind;

/// Stands in for sallyport::lease: all that a gate asks of one.
struct fake_lease {
  std::uint64_t token;
  pass fence_pass() const { return {.lock = "orders", .token = fencing_token{token}}; }
};

class RedisGate : public testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<kit::redis_server>(); }
  static void TearDownTestSuite() { server_.reset(); }
  void SetUp() override { server_->command({"FLUSHALL"}); }

  static kit::redis_probe connect() { return server_->probe(); }
  static std::string value_of(const std::string& key) {
    return server_->command({"GET", key}).text;
  }
  static words numbers_of(const std::string& gate) {
    return server_->command({"HMGET", gate, "lock", "exclusive", "shared"}).texts();
  }

  static verdict show(kit::redis_probe& redis, const redis_gate& gate, const pass& shown,
                      const std::vector<words>& guarded = {}) {
    return redis_gate::verdict_of(
        redis.expect(gate.command(shown, guarded, {})).items.at(0).integer);
  }

 private:
  static inline std::unique_ptr<kit::redis_server> server_;
};

errc code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const lock_error& error) {
    return static_cast<errc>(error.code().value());
  }
  return errc{};
}

TEST_F(RedisGate, LosesTheUpdateWhenNobodyStandsInFront) {
  auto redis = connect();
  redis.expect({"SET", "balance", "100"});

  const int seen_by_first = std::stoi(redis.expect({"GET", "balance"}).text);
  redis.expect({"INCRBY", "balance", "50"});
  redis.expect({"SET", "balance", std::to_string(seen_by_first - 30)});

  EXPECT_EQ(value_of("balance"), "70");  // the second holder's 50 are gone
}

// docs/fencing.md shows this code.
TEST_F(RedisGate, RefusesTheLostUpdate) {
  const fake_lease first{33};
  const fake_lease second{34};
  auto redis = connect();
  redis.expect({"SET", "{orders}:balance", "100"});

  const redis_gate gate{"{orders}:fence"};
  const words keys{"{orders}:balance"};

  const int seen_by_first = std::stoi(redis.expect({"GET", "{orders}:balance"}).text);
  const auto for_second =
      redis.expect(gate.command(second, {{"INCRBY", "{orders}:balance", "50"}}, keys));
  const std::string by_first = std::to_string(seen_by_first - 30);
  const auto for_first =
      redis.expect(gate.command(first, {{"SET", "{orders}:balance", by_first}}, keys));

  EXPECT_EQ(redis_gate::verdict_of(for_second.items.at(0).integer), verdict::passed);
  EXPECT_EQ(for_second.items.at(1).integer, 150);
  EXPECT_EQ(redis_gate::verdict_of(for_first.items.at(0).integer), verdict::stale);
  EXPECT_EQ(value_of("{orders}:balance"), "150");
}

TEST_F(RedisGate, JudgesAsAMemoryGateDoes) {
  base::random random{20};
  auto redis = connect();

  for (int round = 0; round < 60; ++round) {
    // Small numbers meet each other; numbers at the end of 64 bits show that no digit is lost.
    const std::uint64_t base =
        random.chance(0.5) ? 1 : std::numeric_limits<std::uint64_t>::max() - 12;
    const bool bound = random.chance(0.3);
    memory_gate model_bound{"orders"};
    memory_gate model_unbound;
    memory_gate& model = bound ? model_bound : model_unbound;
    const redis_gate gate{"fence:" + std::to_string(round), bound ? "orders" : ""};
    for (int step = 0; step < 40; ++step) {
      const pass shown{.lock = random.chance(0.1) ? "invoices" : "orders",
                       .token = fencing_token{base + random.below(12)},
                       .mode = random.chance(0.5) ? lock_mode::exclusive : lock_mode::shared};
      int ran = 0;
      const verdict expected = model.run(shown, [&] { ++ran; });
      redis.expect({"SET", "ran", "0"});
      ASSERT_EQ(show(redis, gate, shown, {{"INCR", "ran"}}), expected)
          << "round " << round << ", step " << step;
      ASSERT_EQ(redis.expect({"GET", "ran"}).text, std::to_string(ran));
    }
  }
}

TEST_F(RedisGate, IsBoundAnewAsAMemoryGateIs) {
  auto redis = connect();
  for (std::uint64_t round = 0; round < 20; ++round) {
    const redis_gate gate{"fence:" + std::to_string(round)};
    rebind_like_a_memory_gate(
        round, round % 2 == 0 ? 1 : ~std::uint64_t{0} - 12, 40,
        [&](const pass& shown) { return show(redis, gate, shown); },
        [&](const std::string& from, const pass& shown, rebinding wanted) {
          return redis_gate::verdict_of(
              redis.expect(gate.rebind(from, shown, wanted)).items.at(0).integer);
        });
  }
}

TEST_F(RedisGate, RefusesAnotherLock) {
  auto redis = connect();
  const pass other{.lock = "invoices", .token = fencing_token{9}};

  EXPECT_EQ(show(redis, redis_gate{"fence"}, exclusive(3)), verdict::passed);
  EXPECT_EQ(show(redis, redis_gate{"fence"}, other, {{"SET", "ran", "1"}}), verdict::wrong_lock);
  EXPECT_EQ(show(redis, redis_gate{"fence", "invoices"}, other), verdict::wrong_lock);
  EXPECT_EQ(show(redis, redis_gate{"new", "invoices"}, exclusive(3)), verdict::wrong_lock);

  EXPECT_EQ(redis.expect({"EXISTS", "ran", "new"}).integer, 0);
  EXPECT_EQ(numbers_of("fence"), (words{"orders", "3", "0"}));
}

TEST_F(RedisGate, RemembersWithoutATimeToLive) {
  auto redis = connect();

  EXPECT_EQ(show(redis, redis_gate{"fence"}, exclusive(3)), verdict::passed);
  EXPECT_EQ(show(redis, redis_gate{"fence"}, shared(5)), verdict::passed);

  EXPECT_EQ(numbers_of("fence"), (words{"orders", "3", "5"}));
  EXPECT_EQ(redis.expect({"PTTL", "fence"}).integer, -1);
}

TEST_F(RedisGate, PassesEveryByteAndEveryKindOfAnswer) {
  auto redis = connect();
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  const pass shown{.lock = bytes, .token = fencing_token{7}};

  const auto answer = redis.expect(
      redis_gate{"gate" + bytes}.command(shown,
                                         {{"SET", bytes, "]]; redis.call('FLUSHALL') --" + bytes},
                                          {"GET", bytes},
                                          {"GET", "missing"},
                                          {"RPUSH", "list", "", "a"},
                                          {"LRANGE", "list", "0", "-1"}},
                                         {bytes, "list", "missing"}));

  ASSERT_EQ(answer.items.size(), 6u);
  EXPECT_EQ(answer.items[0].integer, 0);
  EXPECT_TRUE(answer.items[1].is_ok());
  EXPECT_EQ(answer.items[2].text, "]]; redis.call('FLUSHALL') --" + bytes);
  EXPECT_TRUE(answer.items[3].is_nil());
  EXPECT_EQ(answer.items[4].integer, 2);
  EXPECT_EQ(answer.items[5].texts(), (words{"", "a"}));
}

TEST_F(RedisGate, TakesTheLongestCommand) {
  auto redis = connect();
  words longest{"RPUSH", "list"};
  longest.resize(redis_gate::max_words, "x");

  const auto answer = redis.expect(redis_gate{"fence"}.command(exclusive(1), {longest}, {"list"}));

  EXPECT_EQ(answer.items.at(1).integer, static_cast<std::int64_t>(redis_gate::max_words) - 2);
}

TEST_F(RedisGate, StopsAtTheFirstFailureAndKeepsTheNumberRaised) {
  auto redis = connect();

  const auto answer = redis.expect(redis_gate{"fence"}.command(
      exclusive(8), {{"SET", "a", "text"}, {"INCR", "a"}, {"SET", "b", "never"}}, {"a", "b"}));

  ASSERT_EQ(answer.items.size(), 3u);
  EXPECT_EQ(answer.items[0].integer, 0);
  EXPECT_TRUE(answer.items[2].is_error());
  EXPECT_EQ(value_of("a"), "text");
  EXPECT_EQ(redis.expect({"EXISTS", "b"}).integer, 0);
  EXPECT_EQ(show(redis, redis_gate{"fence"}, exclusive(7)), verdict::stale);
}

TEST_F(RedisGate, LeavesAKeyAloneThatIsNoGate) {
  auto redis = connect();
  redis.expect({"SET", "text", "x"});
  redis.expect({"HSET", "hash", "field", "x"});
  redis.expect({"HSET", "damaged", "lock", "orders", "exclusive", "many", "shared", "0"});

  for (const char* key : {"text", "hash", "damaged"}) {
    const auto answer =
        redis.command(redis_gate{key}.command(exclusive(8), {{"SET", "ran", "1"}}, {"ran"}));
    EXPECT_TRUE(answer.is_error()) << key;
  }

  EXPECT_EQ(redis.expect({"EXISTS", "ran"}).integer, 0);
  EXPECT_EQ(redis.expect({"HGET", "hash", "exclusive"}).is_nil(), true);
}

TEST_F(RedisGate, RefusesWhatCanNeverBeJudged) {
  const redis_gate gate{"fence"};

  EXPECT_EQ(code_of([] { redis_gate{""}; }), errc::bad_option);
  EXPECT_EQ(code_of([] { redis_gate("fence", std::string(gate::max_lock_bytes + 1, 'x')); }),
            errc::bad_name);
  EXPECT_EQ(code_of([&] { (void)gate.command(exclusive(0), {}, {}); }), errc::no_fencing);
  EXPECT_EQ(code_of([&] { (void)gate.command(pass{.token = fencing_token{1}}, {}, {}); }),
            errc::bad_name);
  EXPECT_EQ(code_of([&] { (void)gate.command(exclusive(1), {{}}, {}); }), errc::bad_option);
  EXPECT_EQ(code_of([&] {
              (void)gate.command(exclusive(1), {words(redis_gate::max_words + 1, "x")}, {});
            }),
            errc::bad_option);
  EXPECT_EQ(code_of([] { (void)redis_gate::verdict_of(3); }), errc::store_refused);
}

// Each client pushes its token under it: whatever the server lets through is in order.
TEST_F(RedisGate, LetsNoOlderWriteFollowANewerOne) {
  constexpr std::uint64_t clients = 4;
  constexpr std::uint64_t turns = 200;
  std::vector<std::thread> threads;
  for (std::uint64_t client = 0; client < clients; ++client) {
    threads.emplace_back([client] {
      auto redis = connect();
      const redis_gate gate{"fence"};
      for (std::uint64_t turn = 0; turn < turns; ++turn) {
        const std::uint64_t token = 1 + turn * clients + client;
        (void)show(redis, gate, exclusive(token), {{"RPUSH", "log", std::to_string(token)}});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  auto redis = connect();
  std::uint64_t newest = 0;
  for (const std::string& entry : redis.expect({"LRANGE", "log", "0", "-1"}).texts()) {
    const std::uint64_t token = std::stoull(entry);
    EXPECT_GT(token, newest);
    newest = token;
  }
  EXPECT_EQ(numbers_of("fence"), (words{"orders", std::to_string(newest), "0"}));
}

TEST(RedisGateOnDisk, RemembersOverAKill) {
  kit::redis_server server{{.persistence = kit::redis_persistence::append_always}};
  const redis_gate gate{"fence"};
  server.command(gate.command(exclusive(8), {{"SET", "balance", "150"}}, {"balance"}));

  server.kill();
  server.start();

  const auto late =
      server.command(gate.command(exclusive(7), {{"SET", "balance", "70"}}, {"balance"}));
  EXPECT_EQ(redis_gate::verdict_of(late.items.at(0).integer), verdict::stale);
  EXPECT_EQ(server.command({"GET", "balance"}).text, "150");
}

}  // namespace
}  // namespace sallyport::fence
