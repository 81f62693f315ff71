-- Compare-and-extend of a lock with many holders; names one key only, or with tokens to draw the counter as well.
-- ARGV 1: kind, 2: id, 3: lease, 4: local waiters, 5: tokens to draw. Answers {1, first, last, remaining} or {0}: gone.
--!include draw.lua

local kind = redis.pcall('HGET', KEYS[1], ':kind')
if kind ~= ARGV[1] then return {0} end
local mine = redis.call('HGET', KEYS[1], ARGV[2])
if not mine then return {0} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expiry, first, last, mode, _, since, _, card = string.match(mine,
  '^(%d+) (%d+) (%d+) (%a) (%a) (%d+) (%d+) (.*)$')
if tonumber(expiry) <= now then return {0} end
expiry = now + ARGV[3]
local latest = tonumber(redis.call('HGET', KEYS[1], ':latest'))
-- First: behind a write that takes no memory a server that is full lets a script write what may take some.
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', math.max(expiry, latest)))
local count = tonumber(ARGV[5])
if count > 0 then
  first, last = draw(KEYS[2], count, now)
  first, last = string.format('%.0f', first), string.format('%.0f', last)
end
redis.call('HSET', KEYS[1], ARGV[2], table.concat({string.format('%.0f', expiry), first, last, mode, 'c', since,
  ARGV[4], card}, ' '))
if expiry < tonumber(redis.call('HGET', KEYS[1], ':soonest')) then
  redis.call('HSET', KEYS[1], ':soonest', string.format('%.0f', expiry))
end
if expiry > latest then redis.call('HSET', KEYS[1], ':latest', string.format('%.0f', expiry)) end
return {1, tonumber(first), tonumber(last), tonumber(ARGV[3])}
