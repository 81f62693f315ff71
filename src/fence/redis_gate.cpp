#include "fence/door.hpp"
#include "fence/gate_state.hpp"
#include <sallyport/error.hpp>
#include <sallyport/fence_redis.hpp>

#include <utility>

namespace sallyport::fence {
namespace {

// KEYS: the gate's, then those of the commands. ARGV: the lock that the gate is made for or "", the
// pass (lock, token, x or s), and the commands, each with the number of its words in front.
//
// Numbers are compared as decimal digits without leading zeros: exact for all 64 bits, which Lua's
// own numbers are not.
constexpr const char* script = R"lua(
local bound, shown, token, mode = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local function less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

local kept = redis.call('HMGET', KEYS[1], 'lock', 'exclusive', 'shared')
local lock, newest_exclusive, newest_shared = kept[1], kept[2], kept[3]
if not lock and redis.call('EXISTS', KEYS[1]) == 0 then
  newest_exclusive, newest_shared = '0', '0'
elseif not (lock and newest_exclusive and newest_shared and
            string.find(newest_exclusive, '^%d+$') and string.find(newest_shared, '^%d+$')) then
  return redis.error_reply('NOTAGATE the key holds no numbers of a fencing gate')
end

if bound ~= '' and (shown ~= bound or (lock and lock ~= bound)) then return {2} end
if lock and lock ~= shown then return {2} end
if less(token, newest_exclusive) then return {1} end
if mode == 'x' and not less(newest_shared, token) then return {1} end

local exclusive, shared = newest_exclusive, newest_shared
if mode == 'x' then
  exclusive = token
elseif less(shared, token) then
  shared = token
end
if not lock or exclusive ~= newest_exclusive or shared ~= newest_shared then
  redis.call('HSET', KEYS[1], 'lock', shown, 'exclusive', exclusive, 'shared', shared)
end

local answer = {0}
local at = 5
while ARGV[at] do
  local last = at + tonumber(ARGV[at])
  local reply = redis.pcall(unpack(ARGV, at + 1, last))
  answer[#answer + 1] = reply
  if type(reply) == 'table' and reply.err then break end
  at = last + 1
end
return answer
)lua";

// KEYS: the gate's. ARGV: the lock that the gate is bound to, the new pass (lock, token), and k or r
// for the numbers.
constexpr const char* rebind_script = R"lua(
local from, shown, token, kind = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local function less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

local kept = redis.call('HMGET', KEYS[1], 'lock', 'exclusive', 'shared')
local lock, newest_exclusive, newest_shared = kept[1], kept[2], kept[3]
if not lock and redis.call('EXISTS', KEYS[1]) == 0 then return {2} end
if not (lock and newest_exclusive and newest_shared and
        string.find(newest_exclusive, '^%d+$') and string.find(newest_shared, '^%d+$')) then
  return redis.error_reply('NOTAGATE the key holds no numbers of a fencing gate')
end
if lock ~= from and lock ~= shown then return {2, lock} end
if lock == from and kind == 'r' then newest_exclusive, newest_shared = '0', '0' end
if less(token, newest_exclusive) or not less(newest_shared, token) then return {1} end
redis.call('HSET', KEYS[1], 'lock', shown, 'exclusive', token, 'shared', newest_shared)
return {0}
)lua";

base::result<void> check_command(const redis_gate::words& command) {
  if (command.empty()) {
    return base::fail(errc::bad_option, "fencing gate: a guarded command has no words");
  }
  if (command.size() > redis_gate::max_words) {
    return base::fail(errc::bad_option, "fencing gate: a guarded command has " +
                                            std::to_string(command.size()) + " words; at most " +
                                            std::to_string(redis_gate::max_words) +
                                            " are taken: split it");
  }
  return {};
}

std::string mode_word(lock_mode mode) {
  switch (mode) {
    case lock_mode::exclusive:
      return "x";
    case lock_mode::shared:
      return "s";
  }
  return {};
}

}  // namespace

redis_gate::redis_gate(std::string key, std::string lock)
    : key_(std::move(key)), lock_(std::move(lock)) {
  if (key_.empty()) throw lock_error(errc::bad_option, "fencing gate: its key in Redis is empty");
  if (!lock_.empty()) value_or_throw(check_lock(lock_));
}

redis_gate::words redis_gate::command(const pass& shown, const std::vector<words>& guarded,
                                      const words& keys) const {
  value_or_throw(check_pass(shown));
  for (const words& one : guarded) value_or_throw(check_command(one));

  words all{"EVAL", script, std::to_string(1 + keys.size()), key_};
  all.insert(all.end(), keys.begin(), keys.end());
  all.insert(all.end(),
             {lock_, shown.lock, std::to_string(shown.token.value()), mode_word(shown.mode)});
  for (const words& one : guarded) {
    all.push_back(std::to_string(one.size()));
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

redis_gate::words redis_gate::rebind(const std::string& from, const pass& shown,
                                     rebinding kind) const {
  value_or_throw(check_rebinding(from, shown));
  return {"EVAL",
          rebind_script,
          "1",
          key_,
          from,
          shown.lock,
          std::to_string(shown.token.value()),
          kind == rebinding::restarts_numbers ? "r" : "k"};
}

verdict redis_gate::verdict_of(std::int64_t first_element) {
  switch (first_element) {
    case 0:
      return verdict::passed;
    case 1:
      return verdict::stale;
    case 2:
      return verdict::wrong_lock;
    default:  // it comes from outside
      throw lock_error(errc::store_refused, "fencing gate: Redis answered " +
                                                std::to_string(first_element) +
                                                ", which is no verdict");
  }
}

}  // namespace sallyport::fence
