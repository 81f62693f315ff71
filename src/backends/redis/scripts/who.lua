-- Everything about some names; changes nothing. Keys: for each name the lock, its queue and its waiters. ARGV 1: whether a
-- key of others counts that nobody of ours waits for, 2: of one name the tickets behind this place, or '-inf' for all.
-- Answers for each {now, type of the lock key, its remaining time, its value or fields, what the waiters wait for, tickets
-- in the order of the queue, how to ask for more of them or nothing}, or nothing. The lock itself is told at the
-- first question only.
local also_others, behind = ARGV[1] == '1', ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- So many tickets are looked at in one call, of all names together (common.lua).
local tickets_left = 128

local function look(lock, queue, waiters)
  local holds = redis.call('TYPE', lock)['ok']
  local queued = redis.call('EXISTS', queue) == 1
  if holds == 'none' and not queued then return false end
  local content = false
  if holds == 'string' and redis.call('GETRANGE', lock, 0, 3) == 'sp1 ' then content = redis.call('GET', lock) end
  if holds == 'hash' and redis.call('HEXISTS', lock, ':kind') == 1 then
    content = behind == '-inf' and redis.call('HGETALL', lock)
  end
  if not content and not queued and not also_others then return false end
  local tickets, more = {}, ''
  -- One more than is told: so it is known whether there are more.
  local found = redis.call('ZRANGEBYSCORE', queue, behind, '+inf', 'WITHSCORES', 'LIMIT', 0, tickets_left + 1)
  for i = 1, #found - 1, 2 do
    if i > 2 * tickets_left then
      more = found[i - 1] and '(' .. found[i - 1] or '-inf'
      break
    end
    tickets[#tickets + 1] = redis.call('HGET', waiters, found[i]) or ''
  end
  tickets_left = tickets_left - #tickets
  return {now, holds, redis.call('PTTL', lock), content or '', redis.call('HGET', waiters, ':kind') or '', tickets, more}
end

local answers = {}
for n = 1, #KEYS, 3 do answers[#answers + 1] = look(KEYS[n], KEYS[n + 1], KEYS[n + 2]) end
return answers
