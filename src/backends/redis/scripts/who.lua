-- Everything about one name; changes nothing. Answers {now, type of the lock key, its remaining time, its value or
-- fields, what the waiters wait for, tickets in the order of the queue}, or nothing. ARGV 1: how many tickets at most,
-- 2: whether a key of others counts that nobody of ours waits for.
local lock, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local what = redis.call('TYPE', lock)['ok']
local queued = redis.call('EXISTS', queue) == 1
if what == 'none' and not queued then return false end
local content = false
if what == 'string' and redis.call('GETRANGE', lock, 0, 3) == 'sp1 ' then content = redis.call('GET', lock) end
if what == 'hash' and redis.call('HEXISTS', lock, ':kind') == 1 then content = redis.call('HGETALL', lock) end
if not content and not queued and ARGV[2] ~= '1' then return false end
local time = redis.call('TIME')
local tickets = {}
for _, id in ipairs(redis.call('ZRANGE', queue, 0, ARGV[1] - 1)) do
  tickets[#tickets + 1] = redis.call('HGET', waiters, id) or ''
end
return {time[1] * 1000 + math.floor(time[2] / 1000), what, redis.call('PTTL', lock), content or '',
  redis.call('HGET', waiters, ':kind') or '', tickets}
