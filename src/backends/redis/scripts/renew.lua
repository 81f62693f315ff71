-- Compare-and-extend of a lock with one holder: names one key only, so that it follows the key wherever a cluster moves
-- it; with tokens to draw the counter is the second. ARGV 1: head, 2: lease, 3: local waiters, 4: tokens to draw.
-- Answers {1, first, last, remaining} or {0}: gone.
--!include draw.lua

local value = redis.pcall('GET', KEYS[1])
local head = ARGV[1]
if type(value) ~= 'string' or string.sub(value, 1, #head) ~= head then return {0} end
local first, last, state, since, locals, card = string.match(value, '^ (%d+) (%d+) (%a) (%d+) (%d+) (.*)$', #head + 1)
local count = tonumber(ARGV[4])
-- First in any case: behind a write that takes no memory a server that is full lets a script write what may take some.
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if count == 0 and state == 'c' and locals == ARGV[3] then
  return {1, tonumber(first), tonumber(last), tonumber(ARGV[2])}
end
if count > 0 then
  local time = redis.call('TIME')
  first, last = draw(KEYS[2], count, time[1] * 1000 + math.floor(time[2] / 1000))
  first, last = string.format('%.0f', first), string.format('%.0f', last)
end
redis.call('SET', KEYS[1], table.concat({head, first, last, 'c', since, ARGV[3], card}, ' '), 'PX', ARGV[2])
return {1, tonumber(first), tonumber(last), tonumber(ARGV[2])}
