-- Everything that this node knows about one name; changes nothing. Keys: lock, line, tickets. ARGV 1: how many tickets at
-- most. Answers {now, type of the lock key, its remaining time, its value, '', tickets}, or nothing.
local lock, line, tickets = KEYS[1], KEYS[2], KEYS[3]
local what = redis.call('TYPE', lock)['ok']
if what == 'none' and redis.call('EXISTS', line) == 0 then return false end
local time = redis.call('TIME')
local all = {}
for _, contender in ipairs(redis.call('ZRANGE', line, 0, ARGV[1] - 1)) do
  all[#all + 1] = redis.call('HGET', tickets, contender) or ''
end
return {time[1] * 1000 + math.floor(time[2] / 1000), what, redis.call('PTTL', lock),
  what == 'string' and redis.call('GET', lock) or '', '', all}
