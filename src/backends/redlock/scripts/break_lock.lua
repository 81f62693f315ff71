-- Takes one node's vote away from a holder. ARGV 1: channel head, 2: its id, 3: s (safe: a tombstone stays for the
-- remaining time) or n (now). Answers 1: done, 0: this id does not hold it here.
--!include common.lua

local value = redis.pcall('GET', lock)
if id_in(value) ~= ARGV[2] then return 0 end
local first, last, state, since, client = string.match(value, '^sp2 %a %S+ (%d+) (%d+) (%a) (%d+) %d+ (%x+)')
if state ~= 't' then redis.call('PUBLISH', ARGV[1] .. client, 'l ' .. ARGV[2]) end
if ARGV[3] == 's' then
  local remaining = math.max(redis.call('PTTL', lock), 1)
  redis.call('PEXPIRE', lock, remaining)  -- a node that is full lets us write behind this
  hold('broken', tonumber(first), tonumber(last), 't', tonumber(since), 0, '0 0 - - ', remaining)
else
  redis.call('DEL', lock)
  wake_first(nil, ARGV[1], math.floor(now_us() / 1000))
end
return 1
