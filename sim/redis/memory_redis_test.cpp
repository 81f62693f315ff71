#include "sim/redis/memory_redis.hpp"

#include "sim/redis/test_replies.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace sallyport::sim::redis {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

struct step {
  std::string command;
  std::string answer;
};

// Each table runs on a fresh server whose clock stands at 1,000,000 ms.
void run(const std::vector<step>& steps) {
  test_server server;
  for (const auto& each : steps) EXPECT_EQ(server(each.command), each.answer) << each.command;
}

TEST(MemoryRedis, KeepsTexts) {
  run({{"GET k", "nil"},
       {"SET k abc", "+OK"},
       {"get k", "\"abc\""},
       {"STRLEN k", "3"},
       {"GETRANGE k 1 -1", "\"bc\""},
       {"GETRANGE k 2 1", "\"\""},
       {"GETRANGE nobody 0 1", "\"\""},
       {"SET k x NX", "nil"},
       {"SET other x XX", "nil"},
       {"SET k x XX GET", "\"abc\""},
       {"SET k y NX GET", "\"x\""},
       {"SET new y NX GET", "nil"},
       {"GET new", "\"y\""},
       {"TYPE k", "+string"},
       {"EXISTS k k nobody", "2"},
       {"DEL k k nobody", "1"},
       {"UNLINK new", "1"},
       {"DBSIZE", "0"}});
}

TEST(MemoryRedis, CountsWithinSixtyFourBits) {
  run({{"INCR n", "1"},
       {"INCRBY n -3", "-2"},
       {"SET n 9223372036854775807", "+OK"},
       {"INCR n", "-ERR"},
       {"SET n 1.0", "+OK"},
       {"INCR n", "-ERR"},
       {"INCRBY n x", "-ERR"},
       {"HINCRBY h f 5", "5"},
       {"HINCRBY h f 9223372036854775807", "-ERR"},
       {"HSET h g x", "1"},
       {"HINCRBY h g 1", "-ERR"},
       {"INCR h", "-WRONGTYPE"}});
}

TEST(MemoryRedis, RefusesWrongTypes) {
  for (const auto* command : {"GET h",          "STRLEN h",
                              "GETRANGE h 0 1", "INCR h",
                              "SET h x GET",    "HGET s f",
                              "HSET s f v",     "HSETNX s f v",
                              "HMGET s f",      "HDEL s f",
                              "HLEN s",         "HEXISTS s f",
                              "HGETALL s",      "HINCRBY s f 1",
                              "ZADD s 1 a",     "ZREM s a",
                              "ZSCORE s a",     "ZCARD h",
                              "ZCOUNT h 0 1",   "ZRANK h a",
                              "ZRANGE h 0 1",   "ZRANGEBYSCORE h 0 1",
                              "ZPOPMIN h",      "ZREMRANGEBYSCORE h 0 1"}) {
    run({{"SET s x", "+OK"}, {"HSET h f v", "1"}, {command, "-WRONGTYPE"}});
  }
}

TEST(MemoryRedis, RefusesWhatRedisCannotRead) {
  for (const auto* command : {"NOSUCH",
                              "GET",
                              "GET a b",
                              "SET k",
                              "SET k v NX XX",
                              "SET k v PX",
                              "SET k v PX 0",
                              "SET k v PX x",
                              "SET k v PX 9223372036854775807",
                              "SET k v PX 5 KEEPTTL",
                              "SET k v PX 5 EX 5",
                              "SET k v NONE",
                              "PEXPIRE k x",
                              "PEXPIRE k 5 NX XX",
                              "PEXPIRE k 5 GT LT",
                              "PEXPIRE k 5 NO",
                              "PEXPIRE k 9223372036854775807",
                              "ZADD z a 1",
                              "ZADD z 1 a 2",
                              "ZADD z NX XX 1 a",
                              "ZADD z NX GT 1 a",
                              "ZADD z GT LT 1 a",
                              "ZADD z nan a",
                              "ZCOUNT z a b",
                              "ZRANGE z a b",
                              "ZRANGE z 0 1 LIMIT 0 1",
                              "ZRANGE z 0 1 BYLEX NO",
                              "ZRANGEBYSCORE z 0 1 LIMIT 0",
                              "ZRANGEBYSCORE z 0 1 BYSCORE",
                              "ZPOPMIN z -1",
                              "ZPOPMIN z 1 2",
                              "HSET h f",
                              "HSET h f v g",
                              "EVAL x",
                              "EVAL x y",
                              "EVAL x 1",
                              "EVAL x -1",
                              "SCRIPT",
                              "SCRIPT NO",
                              "SCRIPT LOAD",
                              "SCRIPT FLUSH NO",
                              "SCAN x",
                              "SCAN 0 COUNT 0",
                              "SCAN 0 MATCH",
                              "FLUSHALL NO",
                              "PING a b",
                              "TIME x"}) {
    run({{command, "-ERR"}, {"DBSIZE", "0"}});
  }
}

TEST(MemoryRedis, KeepsHashes) {
  run({{"HSET h b 1 a 2 b 3", "2"},
       {"HGET h b", "\"3\""},
       {"HGET h c", "nil"},
       {"HMGET h a c b", "[\"2\", nil, \"3\"]"},
       {"HMGET nobody a", "[nil]"},
       {"HGETALL h", "[\"a\", \"2\", \"b\", \"3\"]"},
       {"HKEYS h", "[\"a\", \"b\"]"},
       {"HVALS h", "[\"2\", \"3\"]"},
       {"HGETALL nobody", "[]"},
       {"HLEN h", "2"},
       {"HEXISTS h a", "1"},
       {"HSETNX h a 9", "0"},
       {"HSETNX h c 9", "1"},
       {"TYPE h", "+hash"},
       {"HDEL h a b nobody", "2"},
       {"HDEL h c", "1"},
       {"EXISTS h", "0"}});
}

TEST(MemoryRedis, KeepsSortedSets) {
  run({{"ZADD z 2 b 1 a 2 aa", "3"},
       {"ZRANGE z 0 -1", "[\"a\", \"aa\", \"b\"]"},
       {"ZRANGE z -2 -1 WITHSCORES", "[\"aa\", \"2\", \"b\", \"2\"]"},
       {"ZRANGE z 5 9", "[]"},
       {"ZRANGE z 0 0 REV", "[\"b\"]"},
       {"ZRANGE z (1 +inf BYSCORE LIMIT 1 1", "[\"b\"]"},
       {"ZRANGEBYSCORE z -inf 2 LIMIT 0 2", "[\"a\", \"aa\"]"},
       {"ZRANGEBYSCORE z 0 9 LIMIT -1 2", "[]"},
       {"ZSCORE z b", "\"2\""},
       {"ZSCORE z nobody", "nil"},
       {"ZRANK z b", "2"},
       {"ZRANK z nobody", "nil"},
       {"ZCARD z", "3"},
       {"ZCOUNT z (1 2", "2"},
       {"ZADD z NX 9 a", "0"},
       {"ZADD z XX 9 new", "0"},
       {"ZADD z CH GT 5 a 1 b", "1"},
       {"ZADD z CH LT 4 a 9 b 3 c", "2"},
       {"ZPOPMIN z 2", "[\"aa\", \"2\", \"b\", \"2\"]"},
       {"ZPOPMIN z 0", "[]"},
       {"ZREMRANGEBYSCORE z 3 3", "1"},
       {"ZREM z a nobody", "1"},
       {"EXISTS z", "0"},
       {"ZPOPMIN z", "[]"},
       {"ZADD nobody XX 1 a", "0"},
       {"EXISTS nobody", "0"}});
}

TEST(MemoryRedis, WritesScoresWithSeventeenDigits) {
  run({{"ZADD z 0.1 a -inf b 9007199254740993 c", "3"},
       {"ZRANGE z 0 -1 WITHSCORES",
        "[\"b\", \"-inf\", \"a\", \"0.10000000000000001\", \"c\", \"9007199254740992\"]"}});
}

TEST(MemoryRedis, LetsAKeyLiveThroughItsLastMillisecond) {
  test_server server;
  EXPECT_EQ(server("SET k v PX 10"), "+OK");

  server.now += milliseconds{10} + microseconds{999};

  EXPECT_EQ(server("PTTL k"), "0");
  server.now += microseconds{1};
  EXPECT_EQ(server("PTTL k"), "-2");
  EXPECT_EQ(server("GET k"), "nil");
}

TEST(MemoryRedis, KeepsOrDropsAnExpiry) {
  run({{"SET k v PX 10", "+OK"},
       {"SET k w KEEPTTL", "+OK"},
       {"PTTL k", "10"},
       {"INCRBY n 5", "5"},
       {"PEXPIRE n 7", "1"},
       {"INCR n", "6"},
       {"PTTL n", "7"},
       {"SET k w", "+OK"},
       {"PTTL k", "-1"},
       {"PEXPIRETIME k", "-1"},
       {"SET k w PXAT 1000005", "+OK"},
       {"PEXPIRETIME k", "1000005"},
       {"PERSIST k", "1"},
       {"PERSIST k", "0"},
       {"PTTL nobody", "-2"},
       {"PEXPIRETIME nobody", "-2"}});
}

TEST(MemoryRedis, ChangesAnExpiryUnderConditions) {
  run({{"SET k v", "+OK"},
       {"PEXPIRE k 10 XX", "0"},
       {"PEXPIRE k 10 GT", "0"},
       {"PEXPIRE k 10 NX", "1"},
       {"PEXPIRE k 20 NX", "0"},
       {"PEXPIRE k 10 GT", "0"},
       {"PEXPIRE k 11 GT", "1"},
       {"PEXPIRE k 11 LT", "0"},
       {"PEXPIRE k 5 XX LT", "1"},
       {"PTTL k", "5"},
       {"PEXPIREAT k 1000009", "1"},
       {"PTTL k", "9"},
       {"PEXPIRE nobody 5", "0"}});
}

TEST(MemoryRedis, DropsAKeyThatIsToExpireNow) {
  run({{"SET k v", "+OK"}, {"PEXPIRE k 0", "1"}, {"DBSIZE", "0"}});
  run({{"SET k v", "+OK"}, {"PEXPIREAT k 1000000", "1"}, {"DBSIZE", "0"}});
  // SET is of another mind: it makes a key that the next look removes.
  run({{"SET k v PXAT 5", "+OK"}, {"DBSIZE", "1"}, {"GET k", "nil"}, {"DBSIZE", "0"}});
}

TEST(MemoryRedis, RemovesExpiredKeysWhenSomebodyLooks) {
  test_server server;
  server("SET k v PX 10");
  server("SET other v PX 10");
  server.now += milliseconds{11};

  EXPECT_EQ(server("DBSIZE"), "2");
  EXPECT_EQ(server("EXISTS k"), "0");
  EXPECT_EQ(server("DBSIZE"), "1");
  EXPECT_EQ(server.server.keys().remove_expired(server.now / milliseconds{1}), 1U);
  EXPECT_EQ(server("DBSIZE"), "0");
}

TEST(MemoryRedis, FindsKeysByPatternAndType) {
  run({{"SET a:1 v", "+OK"},
       {"HSET a:2 f v", "1"},
       {"ZADD b 1 m", "1"},
       {"SCAN 0", "[\"0\", [\"a:1\", \"a:2\", \"b\"]]"},
       {"SCAN 0 MATCH a:* COUNT 1", "[\"0\", [\"a:1\", \"a:2\"]]"},
       {"SCAN 0 TYPE HASH", "[\"0\", [\"a:2\"]]"},
       {"SCAN 7", "[\"0\", []]"},
       {"FLUSHALL ASYNC", "+OK"},
       {"SCAN 0", "[\"0\", []]"}});
}

TEST(MemoryRedis, SaysTheTimeItWasTold) {
  test_server server;
  server.now = std::chrono::seconds{1'700'000'000} + microseconds{42};

  EXPECT_EQ(server("TIME"), "[\"1700000000\", \"42\"]");
}

TEST(MemoryRedis, PublishesThroughItsHook) {
  script_host host;
  std::string heard;
  memory_redis server(host, [&](const publication& message) {
    heard += std::string(message.sharded ? "s:" : "") + std::string(message.channel) + '=' +
             std::string(message.payload) + ' ';
    return 3;
  });

  EXPECT_EQ(to_line(server.execute({"PUBLISH", "c", "hello"}, {})), "3");
  EXPECT_EQ(to_line(server.execute({"SPUBLISH", "d", "x"}, {})), "3");
  EXPECT_EQ(to_line(server.execute({"EVAL", "return redis.call('publish','e','y')", "0"}, {})),
            "3");
  EXPECT_EQ(heard, "c=hello s:d=x e=y ");
}

TEST(MemoryRedis, BringsBackWhatWasCopied) {
  test_server server;
  server("SET k v");
  const keyspace copy = server.server.keys();
  server("SET k w");

  server.server.keys() = copy;

  EXPECT_EQ(server("GET k"), "\"v\"");
}

}  // namespace
}  // namespace sallyport::sim::redis
