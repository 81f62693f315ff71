#include "tests/redis_model/random_commands.hpp"

#include "sim/redis/sha1.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace sallyport::redis_model {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view call_script = "return redis.call(unpack(ARGV))";
constexpr std::string_view pcall_script = "return redis.pcall(unpack(ARGV))";
constexpr std::string_view typed_script =
    "local r = redis.pcall(unpack(ARGV)) if type(r) == 'table' and r.err then return {'error', "
    "string.match(r.err, '^%S+')} end return {type(r), r}";
constexpr std::string_view caught_script =
    "local ok, r = pcall(redis.call, unpack(ARGV)) if ok then return {1, r} end "
    "return {0, type(r), string.match(r, '^%S+')}";

// What becomes of Lua's values on their way out, of numbers on their way in, and of errors.
constexpr std::array<std::string_view, 46> conversions{
    "return 3.99",
    "return -3.99",
    "return 2^53",
    "return -2^70",
    "return 0/0",
    "return {1,2,nil,4}",
    "return {1,{2,{3,'x'}},true,false}",
    "return {ok='FINE'}",
    "return {err='CODE why'}",
    "return {err='alone'}",
    "return {ok='a\\nb'}",
    "return {ok=1}",
    "return {err=1,ok='A'}",
    "return {double=0.1}",
    "return {nil,1}",
    "return function() end",
    "return {string.len,1}",
    "return nil",
    "return",
    "return ...",
    "return true",
    "return ''",
    "return (",
    "x = 1",
    "return x",
    "KEYS = 1",
    "string.x = 1",
    "redis.call = 1",
    "rawset(_G,'x',1)",
    "setmetatable(_G,{})",
    "return redis.call()",
    "return redis.pcall()",
    "return redis.call('get',{})",
    "return redis.call('get',nil)",
    "return redis.call('eval','return 1',0)",
    "return redis.error_reply('CODE why')",
    "return redis.error_reply('alone')",
    "return redis.error_reply()",
    "return redis.status_reply('FINE')",
    "return redis.status_reply({})",
    "return redis.sha1hex('abc')",
    "error('why')",
    "error({err='CODE why'})",
    "return {pcall(error,'why')}",
    "local t = redis.call('time') return {t[1], t[2]}",
    "redis.call('set',KEYS[1],'before') error('after')",
};
constexpr std::array<std::string_view, 14> numbers{
    "1",    "-1",   "0.1", "2^53", "2^53+2", "-2^63", "1e15",
    "1e16", "1e17", "1/0", "-1/0", "1e-5",   "-0.0",  "1700000000000*1024"};

}  // namespace

template <class... Texts>
std::string random_commands::one_of(Texts... texts) {
  const std::array<std::string_view, sizeof...(texts)> all{texts...};
  return std::string(all[luck_.below(all.size())]);
}

std::string random_commands::key() { return one_of("a", "b", "c", "d", "e", "f\x01\xff"); }
std::string random_commands::field() { return one_of("f", "g", "h", ":kind", "\xff", ""); }

std::string random_commands::text() {
  if (luck_.chance(0.3)) return integer();
  return one_of("", "x", "long text with blanks", "sp1 m 00ff", "0", "12",
                std::string_view("\0\r\n", 3));
}

std::string random_commands::integer() {
  if (luck_.chance(0.8)) return std::to_string(static_cast<std::int64_t>(luck_.below(20)) - 5);
  return one_of("9223372036854775807", "-9223372036854775808", "9223372036854775808", "01", "-0",
                "+1", " 1", "1 ", "1.5", "", "x", "1e3", "4611686018427387904", "9007199254740993");
}

std::string random_commands::milliseconds() {
  return luck_.chance(0.85) ? std::to_string(luck_.below(30)) : integer();
}

std::string random_commands::moment() {
  constexpr std::int64_t beginning_ms = 1'700'000'000'000;
  if (luck_.chance(0.1)) return integer();
  return std::to_string(beginning_ms + static_cast<std::int64_t>(luck_.below(4000)));
}

std::string random_commands::score() {
  if (luck_.chance(0.7)) return std::to_string(static_cast<std::int64_t>(luck_.below(6)) - 1);
  return one_of("inf", "-inf", "+inf", "0.1", "1e3", "-0", "0x10", "nan", "", " 1", "1 ", "1e400",
                "1e-400", "1740800000000000", "9007199254740993", "1e17", "12345678901234567890");
}

std::string random_commands::limit() {
  const auto base = luck_.chance(0.3) ? one_of("inf", "-inf", "+inf") : score();
  return luck_.chance(0.3) ? '(' + base : base;
}

std::string random_commands::index() {
  return luck_.chance(0.9) ? std::to_string(static_cast<std::int64_t>(luck_.below(9)) - 4)
                           : integer();
}

void random_commands::add_sometimes(words& command, double chance, std::string word) {
  if (luck_.chance(chance)) command.push_back(std::move(word));
}

void random_commands::add_many(words& command, std::string (random_commands::*make)()) {
  const auto count = 1 + luck_.below(3);
  for (std::uint64_t i = 0; i < count; ++i) command.push_back((this->*make)());
}

words random_commands::set() {
  words command{"SET", key(), text()};
  add_sometimes(command, 0.3, one_of("NX", "XX", "nx"));
  if (luck_.chance(0.5)) {
    const auto option = one_of("PX", "PX", "PX", "PXAT", "EX", "EXAT");
    command.push_back(option);
    command.push_back(option == "PXAT" ? moment() : milliseconds());
  }
  add_sometimes(command, 0.15, "KEEPTTL");
  add_sometimes(command, 0.15, "GET");
  add_sometimes(command, 0.03, one_of("NX", "XX", "PX", "NONE"));
  return command;
}

words random_commands::on_text() {
  switch (luck_.below(7)) {
    case 0:
    case 1:
      return set();
    case 2:
      return {"GET", key()};
    case 3:
      return {"STRLEN", key()};
    case 4:
      return {"GETRANGE", key(), index(), index()};
    case 5:
      return {"INCR", key()};
    default:
      return {"INCRBY", key(), integer()};
  }
}

words random_commands::expiry() {
  const bool absolute = luck_.chance(0.3);
  words command{absolute ? "PEXPIREAT" : "PEXPIRE", key(), absolute ? moment() : milliseconds()};
  add_sometimes(command, 0.4, one_of("NX", "XX", "GT", "LT", "gt", "NO"));
  add_sometimes(command, 0.05, one_of("NX", "XX", "GT", "LT"));
  return command;
}

words random_commands::on_key() {
  words command;
  switch (luck_.below(8)) {
    case 0:
      command = {one_of("DEL", "UNLINK")};
      add_many(command, &random_commands::key);
      return command;
    case 1:
      command = {"EXISTS"};
      add_many(command, &random_commands::key);
      return command;
    case 2:
      return {"TYPE", key()};
    case 3:
      return {"PTTL", key()};
    case 4:
      return {"PEXPIRETIME", key()};
    case 5:
      return {"PERSIST", key()};
    default:
      return expiry();
  }
}

words random_commands::on_hash() {
  words command;
  switch (luck_.below(9)) {
    case 0:
    case 1: {
      command = {"HSET", key()};
      const auto count = 1 + luck_.below(3);
      for (std::uint64_t i = 0; i < count; ++i) {
        command.push_back(field());
        command.push_back(text());
      }
      return command;
    }
    case 2:
      return {"HSETNX", key(), field(), text()};
    case 3:
      return {"HGET", key(), field()};
    case 4:
      command = {"HMGET", key()};
      add_many(command, &random_commands::field);
      return command;
    case 5:
      command = {"HDEL", key()};
      add_many(command, &random_commands::field);
      return command;
    case 6:
      return {one_of("HLEN", "HGETALL", "HKEYS", "HVALS"), key()};
    case 7:
      return {"HEXISTS", key(), field()};
    default:
      return {"HINCRBY", key(), field(), integer()};
  }
}

words random_commands::add_to_sorted_set() {
  words command{"ZADD", key()};
  for (const auto* option : {"NX", "XX", "GT", "LT", "CH", "INCR"})
    add_sometimes(command, 0.1, option);
  const auto count = 1 + luck_.below(3);
  for (std::uint64_t i = 0; i < count; ++i) {
    command.push_back(score());
    command.push_back(field());
  }
  return command;
}

words random_commands::range() {
  if (luck_.chance(0.4)) {
    words command{"ZRANGE", key(), index(), index()};
    add_sometimes(command, 0.4, "WITHSCORES");
    add_sometimes(command, 0.2, "REV");
    return command;
  }
  const bool by_option = luck_.chance(0.4);
  words command{by_option ? "ZRANGE" : "ZRANGEBYSCORE", key(), limit(), limit()};
  if (by_option) command.push_back("BYSCORE");
  if (luck_.chance(0.5)) {
    command.push_back("LIMIT");
    command.push_back(index());
    command.push_back(index());
  }
  add_sometimes(command, 0.4, "WITHSCORES");
  add_sometimes(command, by_option ? 0.3 : 0.03, "REV");
  return command;
}

words random_commands::on_sorted_set() {
  words command;
  switch (luck_.below(11)) {
    case 0:
    case 1:
    case 2:
      return add_to_sorted_set();
    case 3:
      command = {"ZREM", key()};
      add_many(command, &random_commands::field);
      return command;
    case 4:
      command = {"ZPOPMIN", key()};
      add_sometimes(command, 0.4, integer());
      return command;
    case 5:
      return {one_of("ZSCORE", "ZRANK"), key(), field()};
    case 6:
      return {"ZCARD", key()};
    case 7:
      return {"ZCOUNT", key(), limit(), limit()};
    case 8:
      return {"ZREMRANGEBYSCORE", key(), limit(), limit()};
    default:
      return range();
  }
}

words random_commands::on_server() {
  const auto name = sim::redis::sha1_hex(call_script);
  switch (luck_.below(12)) {
    case 0:
      return {"PING"};
    case 1:
      return {"PING", text()};
    case 2:
      return {"TIME"};
    case 3:
      return {"DBSIZE"};
    case 4:
      return {"SCAN", luck_.chance(0.9) ? "0" : one_of("x", "", " 0", "99999999999999999999999")};
    case 5:
      return {
          "SCAN", "0", one_of("MATCH", "match", "COUNT", "TYPE"),
          one_of("*", "[a-c]", "a*", "?", "[^a]", "\\a", "string", "ZSET", "hash", "1", "0", "x")};
    case 6:
      return {"SCRIPT", "EXISTS", name, "x"};
    case 7:
      return {"SCRIPT", "LOAD", std::string(call_script)};
    case 8:
      return luck_.chance(0.5)
                 ? words{"SCRIPT", one_of("FLUSH", "flush", "NO"), one_of("SYNC", "NO")}
                 : words{"SCRIPT", "FLUSH"};
    case 9:
      return luck_.chance(0.3) ? words{"FLUSHALL"} : words{"FLUSHALL", one_of("NO", "SYNC")};
    default:
      return {one_of("PUBLISH", "SPUBLISH"), one_of("news", "other"), text()};
  }
}

words random_commands::conversion() {
  if (luck_.chance(0.3)) {
    const auto number = std::string(numbers[luck_.below(numbers.size())]);
    return {"EVAL", "redis.call('set',KEYS[1]," + number + ") return redis.call('get',KEYS[1])",
            "1", key()};
  }
  return {"EVAL", std::string(conversions[luck_.below(conversions.size())]),
          one_of("1", "1", "1", "0", "2", "x", "-1"), key()};
}

words random_commands::plain() {
  const auto kind = luck_.below(100);
  if (kind < 22) return on_text();
  if (kind < 40) return on_key();
  if (kind < 62) return on_hash();
  if (kind < 90) return on_sorted_set();
  return on_server();
}

made_command random_commands::from_script() {
  auto inner = plain();
  if (luck_.chance(0.1)) spoil(inner);
  auto how = order_of(inner.front());
  // Its pages would have to be read one by one.
  if (how == order::scan) inner = {"GET", key()};
  words command;
  if (luck_.chance(0.3)) {
    command = {"EVALSHA", sim::redis::sha1_hex(call_script), "0"};
  } else {
    // Answers without an order are compared in the plain scripts only.
    const auto kind = how == order::exact ? luck_.below(4) : luck_.below(2);
    constexpr std::array<std::string_view, 4> scripts{call_script, pcall_script, typed_script,
                                                      caught_script};
    command = {"EVAL", std::string(scripts[kind]), "0"};
  }
  if (how == order::scan) how = order::exact;
  command.insert(command.end(), inner.begin(), inner.end());
  return {std::move(command), how};
}

void random_commands::spoil(words& command) {
  switch (luck_.below(4)) {
    case 0:
      command.pop_back();
      if (command.empty()) command.emplace_back("NOSUCH");
      return;
    case 1:
      command.push_back(one_of("x", "", "1", "NX", "WITHSCORES"));
      return;
    case 2:
      // A cursor that was not asked for leads anywhere.
      if (command.front() == "SCAN") return;
      if (command.size() > 1) command[1 + luck_.below(command.size() - 1)] = text();
      return;
    default:
      command.front() = one_of("NOSUCH", "get", "zAdd", "hset", "pexpire");
      return;
  }
}

made_command random_commands::next() {
  if (luck_.chance(0.05)) return {conversion(), order::exact};
  if (luck_.chance(0.3)) return from_script();
  auto command = plain();
  if (luck_.chance(0.05)) spoil(command);
  const auto how = order_of(command.front());
  return {std::move(command), how};
}

std::chrono::microseconds random_commands::step() {
  const auto kind = luck_.below(20);
  if (kind < 12) return std::chrono::microseconds{luck_.below(1500)};
  if (kind < 17) return std::chrono::milliseconds{luck_.below(5)};
  if (kind < 19) return std::chrono::milliseconds{luck_.below(60)};
  return -std::chrono::microseconds{luck_.below(10'000)};
}

}  // namespace sallyport::redis_model
