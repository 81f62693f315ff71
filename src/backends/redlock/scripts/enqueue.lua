-- Stands in line, or says that it still does. ARGV 1: the mark's stamp, 2: channel head, 3: contender, 4: when it came, or 0 for now, 5:
-- ticket, 6: claim window, 7: tokens, 8: local waiters, 9: card. Answers {1, 1 if the lock is free and it is the first, 1 if it is
-- the first, remaining time of the lock or -2, foreign holder}, {2, nonce}: it was handed over to it, {-1, mark}.
--!include common.lua

local mark = redis.call('GET', member) or ''
if string.sub(mark, 1, 20) ~= ARGV[1] then return {-1, mark} end
local contender, ticket_ms = ARGV[3], tonumber(ARGV[5])
local value = redis.pcall('GET', lock)
local id = id_in(value)
if id and string.sub(id, 1, #contender + 1) == contender .. '|' then return {2, string.sub(id, #contender + 2)} end
local now = now_us()
local now_ms = math.floor(now / 1000)
local came, since = string.match(redis.call('HGET', tickets, contender) or '', '^(%d+) %d+ %d+ %d+ %a (%d+)')
came = ARGV[4] ~= '0' and ARGV[4] or came or whole(now)
since = since or whole(now_ms)
redis.call('HSET', tickets, contender, table.concat({came, whole(now_ms + ticket_ms), ARGV[6], ARGV[7], 'x', since,
  ARGV[8], ARGV[9]}, ' '))
redis.call('ZADD', line, came, contender)
if redis.call('PTTL', line) < ticket_ms then
  local ttl = whole(ticket_ms * 1.25)
  redis.call('PEXPIRE', line, ttl)
  redis.call('PEXPIRE', tickets, ttl)
end
local first = first_in_line(now_ms) == contender
if not value and not first then wake_first(contender, ARGV[2], now_ms) end
return {1, (first and not value) and 1 or 0, first and 1 or 0, value and redis.call('PTTL', lock) or -2,
  (value and not id) and 1 or 0}
