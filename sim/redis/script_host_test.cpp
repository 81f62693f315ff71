#include "sim/redis/script_host.hpp"

#include "sim/redis/sha1.hpp"
#include "sim/redis/test_replies.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace sallyport::sim::redis {
namespace {

struct expectation {
  std::string body;
  std::string answer;
};

void run(const std::vector<expectation>& table) {
  for (const auto& [body, answer] : table) {
    test_server server;
    server("SET text v");
    server("HSET hash f v");
    EXPECT_EQ(server.script(body), answer) << body;
  }
}

TEST(ScriptHost, TurnsLuaIntoReplies) {
  run({{"return 1.9", "1"},
       {"return -1.9", "-1"},
       {"return 'x'", "\"x\""},
       {"return true", "1"},
       {"return false", "nil"},
       {"return nil", "nil"},
       {"return", "nil"},
       {"return {1,'a',true,false,{2}}", "[1, \"a\", 1, nil, [2]]"},
       {"return {1,nil,3}", "[1]"},
       {"return {}", "[]"},
       {"return {ok='fine'}", "+fine"},
       {"return {err='CODE why'}", "-CODE"},
       {"return {ok=1}", "[]"},
       {"return {1,{err='x y'}}", "[1, -x]"},
       {"return {double=0.1}", "\"0.10000000000000001\""},
       {"return {ok='a\\r\\nb'}", "+a  b"},
       {"return print", "-ERR"},
       {"return {string.len,2}", "[nil, 2]"},
       {"return 1/0", "-9223372036854775808"}});
}

TEST(ScriptHost, TurnsRepliesIntoLua) {
  run({{"return type(redis.call('get','nobody'))", "\"boolean\""},
       {"return redis.call('set','k','v').ok", "\"OK\""},
       {"return redis.call('incr','n') + 1", "2"},
       {"return #redis.call('hgetall','hash')", "2"},
       {"return redis.call('hmget','hash','f','g')[2] == false and 'nil'", "\"nil\""},
       {"return redis.pcall('get','hash').err",
        "\"WRONGTYPE Operation against a key holding the "
        "wrong kind of value\""},
       {"return redis.pcall('get','hash')", "-WRONGTYPE"},
       {"return redis.call('get','hash')", "-WRONGTYPE"}});
}

TEST(ScriptHost, WritesNumbersInArgumentsExactly) {
  run({{"redis.call('set','k',2^53) return redis.call('get','k')", "\"9007199254740992\""},
       {"redis.call('set','k',-7) return redis.call('get','k')", "\"-7\""},
       {"redis.call('set','k',0.1) return redis.call('get','k')", "\"0.10000000000000001\""},
       {"redis.call('set','k',1e17) return redis.call('get','k')", "\"1e+17\""},
       {"return redis.call('set','k',true)", "-ERR"},
       {"return redis.call('set','k',{})", "-ERR"},
       {"return redis.call('set','k',nil)", "-ERR"}});
}

TEST(ScriptHost, TellsErrorsAsRedisDoes) {
  run({{"return redis.call()", "-ERR"},
       {"return redis.pcall()", "-ERR"},
       {"return redis.call('nosuch')", "-ERR"},
       {"return redis.call('get')", "-ERR"},
       {"return redis.call('eval','return 1',0)", "-ERR"},
       {"return redis.call('script','flush')", "-ERR"},
       {"return redis.error_reply('CODE why')", "-CODE"},
       {"return redis.error_reply('-CODE why')", "-CODE"},
       {"return redis.error_reply('word').err", "\"ERR word\""},
       {"return redis.error_reply()", "-ERR"},
       {"return redis.status_reply('fine')", "+fine"},
       {"return redis.status_reply(1)", "-ERR"},
       {"return redis.sha1hex('')", "\"da39a3ee5e6b4b0d3255bfef95601890afd80709\""},
       {"return redis.sha1hex()", "-ERR"},
       {"error('why')", "-ERR"},
       {"error({err='CODE why'})", "-CODE"},
       {"return (", "-ERR"},
       {"local ok, why = pcall(redis.call,'get','hash') return why",
        "\"WRONGTYPE Operation against a key holding the wrong kind of value\""},
       {"local ok, why = pcall(error,{1}) return why", "[1]"},
       {"return {pcall(function() return 1, 2 end)}", "[1, 1, 2]"}});
}

TEST(ScriptHost, SaysWhereAnErrorWasRaised) {
  test_server server;
  const std::string body = "local x = 1\nreturn redis.call('get')";

  const auto answer = server.server.execute({"EVAL", body, "0"}, server.now);

  EXPECT_EQ(answer.text, "ERR Wrong number of args calling Redis command from script script: " +
                             sha1_hex(body) + ", on @user_script:2.");
}

TEST(ScriptHost, ProtectsItsGlobals) {
  run({{"x = 1", "-ERR"},
       {"return x", "-ERR"},
       {"KEYS = {}", "-ERR"},
       {"function f() end", "-ERR"},
       {"string.x = 1", "-ERR"},
       {"redis.call = nil", "-ERR"},
       {"rawset(_G,'x',1)", "-ERR"},
       {"rawset(string,'x',1)", "-ERR"},
       {"setmetatable(_G,{})", "-ERR"},
       {"_G.x = 1", "-ERR"},
       {"return rawset({},1,5)", "[5]"},
       {"KEYS[1] = 'x' return KEYS[1]", "\"x\""},
       {"return string.x == nil and 1", "1"},
       {"return loadstring('return 3')()", "3"},
       {"return loadstring('x = 3')()", "-ERR"}});
  for (const auto* hidden :
       {"io", "os", "debug", "package", "require", "dofile", "loadfile", "print", "collectgarbage",
        "getfenv", "setfenv", "newproxy", "module"}) {
    run({{std::string("return ") + hidden, "-ERR"}});
  }
}

TEST(ScriptHost, HandsOverKeysAndValues) {
  test_server server;

  EXPECT_EQ(server.script("return {KEYS[1],KEYS[2] or 'no',ARGV[1],#ARGV}", "1 a b c"),
            "[\"a\", \"no\", \"b\", 2]");
  EXPECT_EQ(server.script("return {#KEYS,#ARGV}"), "[0, 0]");
}

TEST(ScriptHost, KeepsWhatWasWrittenBeforeAnError) {
  test_server server;

  EXPECT_EQ(server.script("redis.call('set','k','v') error('late')"), "-ERR");

  EXPECT_EQ(server("GET k"), "\"v\"");
}

TEST(ScriptHost, FindsScriptsByTheirName) {
  test_server server;
  const auto name = sha1_hex("return 7");

  EXPECT_EQ(server("EVALSHA " + name + " 0"), "-NOSCRIPT");
  EXPECT_EQ(to_line(server.server.execute({"SCRIPT", "LOAD", "return 7"}, {})), '"' + name + '"');
  EXPECT_EQ(server("EVALSHA " + name + " 0"), "7");
  EXPECT_EQ(server("SCRIPT EXISTS " + name + " x"), "[1, 0]");
  EXPECT_EQ(server("SCRIPT FLUSH"), "+OK");
  EXPECT_EQ(server("EVALSHA " + name + " 0"), "-NOSCRIPT");
  EXPECT_EQ(server("EVALSHA x x"), "-NOSCRIPT");
  EXPECT_EQ(server.script("return 7"), "7");
  EXPECT_EQ(server("EVALSHA " + name + " 0"), "7");
}

TEST(ScriptHost, ServesManyServersWithoutMixingThem) {
  script_host host;
  memory_redis one(host);
  memory_redis other(host);

  one.execute({"EVAL", "return redis.call('set',KEYS[1],'v')", "1", "k"}, {});

  EXPECT_EQ(to_line(other.execute({"GET", "k"}, {})), "nil");
  EXPECT_EQ(to_line(other.execute(
                {"SCRIPT", "EXISTS", sha1_hex("return redis.call('set',KEYS[1],'v')")}, {})),
            "[0]");
}

TEST(ScriptHost, HoldsTimeStillInAScript) {
  test_server server;
  server("SET k v PX 10");
  server.now += std::chrono::milliseconds{10};

  EXPECT_EQ(server.script("local t = redis.call('time') for i=1,1000 do end "
                          "return {t[1], redis.call('pttl','k'), redis.call('time')[2] - t[2]}"),
            "[\"1000\", 0, 0]");
}

TEST(ScriptHost, EndsAScriptThatNeverWould) {
  test_server server;

  EXPECT_EQ(server.script("while true do end"), "-ERR");
  EXPECT_EQ(server.script("return 1"), "1");
}

}  // namespace
}  // namespace sallyport::sim::redis
