-- One node's vote for a contender. ARGV 1: the mark's stamp, 2: channel head, 3: contender, 4: id, 5: lease, 6: tokens,
-- 7: local waiters, 8: card. Answers {1, last token}, {0, remaining time of the lock or -2, foreign holder, server's time in us},
-- {2, nonce}: it was handed over to this contender, {-1, mark}: this node is no member of the asker's store.
if string.sub(redis.call('GET', KEYS[5]) or '', 1, 20) == ARGV[1] and redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  -- The common case, before anything else is set up: free, and nobody waits.
  local time = redis.call('TIME')
  local last = redis.call('INCRBY', KEYS[4], ARGV[6])
  redis.call('SET', KEYS[1], string.format('sp2 m %s %.0f %.0f c %.0f %s %s', ARGV[4], last - ARGV[6] + 1, last,
    time[1] * 1000 + math.floor(time[2] / 1000), ARGV[7], ARGV[8]), 'PX', ARGV[5])
  return {1, last}
end

--!include common.lua

local mark = redis.call('GET', member) or ''
if string.sub(mark, 1, 20) ~= ARGV[1] then return {-1, mark} end
local contender = ARGV[3]
local value = redis.pcall('GET', lock)
local now = now_us()
if value then
  local id = id_in(value)
  if id and string.sub(id, 1, #contender + 1) == contender .. '|' then return {2, string.sub(id, #contender + 2)} end
  return {0, redis.call('PTTL', lock), id and 0 or 1, now}
end
if wake_first(contender, ARGV[2], math.floor(now / 1000)) then return {0, -2, 0, now} end
forget(contender)
local last = redis.call('INCRBY', counter, ARGV[6])
hold(ARGV[4], last - ARGV[6] + 1, last, 'c', math.floor(now / 1000), ARGV[7], ARGV[8], ARGV[5])
return {1, last}
