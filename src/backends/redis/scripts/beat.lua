-- The heartbeats of several waiters for locks with one holder, in one command. Keys: the counter of tokens, then for each
-- waiter the lock, its queue, its waiters and those set aside; arguments for each: head ("sp1 KIND ID"), id, ticket,
-- claim window, tokens, local waiters. Answers for each what acquire answers to one that goes on waiting, or 0: something
-- has changed, ask by acquire.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function beat(lock, queue, waiters, absent, head, id, ticket_ms, window_ms, count, locals)
  local value = redis.pcall('GET', lock)
  if type(value) ~= 'string' or string.sub(value, 1, #head) == head then return 0 end
  local foreign = string.sub(value, 1, 4) ~= 'sp1 '
  if not foreign and string.sub(value, 5, 5) ~= string.sub(head, 5, 5) then return 0 end
  local ticket = redis.call('HGET', waiters, id)
  if not ticket then return 0 end
  local place, lapses, mode, since, card = string.match(ticket, '^(%d+) (%d+) %d+ %d+ (%a) (%d+) %d+ (.*)$')
  if tonumber(lapses) <= now then return 0 end
  local rank = redis.call('ZRANK', queue, id)
  if not rank then return 0 end
  redis.call('HSET', waiters, id, table.concat({place, string.format('%.0f', now + ticket_ms), window_ms, count, mode,
    since, locals, card}, ' '))
  if redis.call('PTTL', queue) < tonumber(ticket_ms) then
    local ttl = string.format('%.0f', ticket_ms * 1.25)
    redis.call('PEXPIRE', queue, ttl)
    redis.call('PEXPIRE', waiters, ttl)
    redis.call('PEXPIRE', absent, ttl)
  end
  local newest
  if foreign then
    newest = tonumber(redis.call('GET', KEYS[1]) or 0)
  else
    newest = tonumber(string.match(value, '^sp1 %a %x+ %d+ (%d+)'))
  end
  local ask_again = -1
  if rank == 0 then
    -- One that was passed over asks more often (common.lua).
    local passed_over = string.find(redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')[2], '.', 1, true)
    ask_again = passed_over and 100 or redis.call('PTTL', lock)
  end
  return {2, ask_again, newest, foreign and 1 or 0, rank == 0 and 1 or 0}
end

local answers = {}
for n = 0, (#KEYS - 1) / 4 - 1 do
  local k, a = 4 * n + 1, 6 * n
  answers[n + 1] = beat(KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3],
    ARGV[a + 4], ARGV[a + 5], ARGV[a + 6])
end
return answers
