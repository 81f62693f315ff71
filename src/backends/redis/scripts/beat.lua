-- The heartbeats of several waiters, in one command. Keys: the counter of tokens, then for each waiter the lock, its queue,
-- its waiters and those set aside; arguments for each: head ("sp1 KIND ID"), id, ticket, claim window, tokens, local
-- waiters. Answers for each what acquire answers to one that goes on waiting, or 0: something has changed, or somebody may
-- be able to enter; ask by acquire.
--!include places.lua

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- A lock with one holder, which is in the way of everybody: the largest token, whether it is another library's, permits.
-- Nothing: it is free, or this contender's, or of another kind.
local function barred_by_one(lock, head)
  local value = redis.pcall('GET', lock)
  if type(value) ~= 'string' or string.sub(value, 1, #head) == head then return end
  if string.sub(value, 1, 4) ~= 'sp1 ' then return tonumber(redis.call('GET', KEYS[1]) or 0), true, 1 end
  if string.sub(value, 5, 5) ~= string.sub(head, 5, 5) then return end
  return tonumber(string.match(value, '^sp1 %a %x+ %d+ (%d+)')), false, 1
end

-- The same of a lock with many holders (many.lua); nothing also if one of them has lapsed, or somebody may enter beside them.
-- The fourth is when the first of them lapses.
local function barred_by_many(lock, kind)
  local used_as = redis.pcall('HGET', lock, ':kind')
  if used_as ~= kind then return end
  local soonest = tonumber(redis.call('HGET', lock, ':soonest'))
  if soonest <= now then return end
  local permits = 1
  if kind == 'n' then
    permits = tonumber(redis.call('HGET', lock, ':permits'))
    if redis.call('HLEN', lock) - 5 < permits then return end
  elseif redis.call('HGET', lock, ':bars') == '0' then
    return
  end
  return tonumber(redis.call('GET', KEYS[1]) or 0), false, permits, soonest
end

local function beat(lock, queue, waiters, absent, head, id, ticket_ms, window_ms, count, locals)
  local kind = string.sub(head, 5, 5)
  local newest, foreign, permits, soonest
  if kind == 's' or kind == 'n' then
    newest, foreign, permits, soonest = barred_by_many(lock, kind)
  else
    newest, foreign, permits = barred_by_one(lock, head)
  end
  if not newest then return 0 end
  local ticket = redis.call('HGET', waiters, id)
  if not ticket then return 0 end
  local place, lapses, mode, since, card = string.match(ticket, '^(%d+) (%d+) %d+ %d+ (%a) (%d+) %d+ (.*)$')
  if tonumber(lapses) <= now then return 0 end
  local rank = redis.call('ZRANK', queue, id)
  if not rank then return 0 end
  local stretch = ticket_stretch(queue, rank)
  local lives_ms = ticket_ms * stretch
  redis.call('HSET', waiters, id, table.concat({place, string.format('%.0f', now + lives_ms), window_ms, count, mode,
    since, locals, card}, ' '))
  if redis.call('PTTL', queue) < lives_ms then
    local ttl = string.format('%.0f', lives_ms * 1.25)
    redis.call('PEXPIRE', queue, ttl)
    redis.call('PEXPIRE', waiters, ttl)
    redis.call('PEXPIRE', absent, ttl)
  end
  local ask_again = -1
  if rank == 0 then
    -- One that was passed over asks more often (common.lua).
    local unheard = passed_over(redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')[2])
    ask_again = unheard and 100 or soonest and soonest - now or redis.call('PTTL', lock)
  end
  return {2, ask_again, newest, foreign and 1 or 0, rank == 0 and 1 or 0, permits, rank, stretch}
end

local answers = {}
for n = 0, (#KEYS - 1) / 4 - 1 do
  local k, a = 4 * n + 1, 6 * n
  answers[n + 1] = beat(KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3],
    ARGV[a + 4], ARGV[a + 5], ARGV[a + 6])
end
return answers
