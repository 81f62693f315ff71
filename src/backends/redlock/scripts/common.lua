-- What the scripts share that deal with the line of waiters. Keys: the lock, the line (sorted set: contender -> when it
-- came), the tickets (hash: contender -> ticket), the counter of tokens, the mark of membership.
local lock, line, tickets, counter, member = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function whole(number)
  return string.format('%.0f', number)
end

-- The lock's value: sp2 KIND ID FIRST LAST STATE SINCE LOCALS CARD, where STATE is c (claimed), p (handed over, not
-- claimed yet) or t (a tombstone), and a card is CLIENT PID HOST LABEL VALUE.
local function id_in(value)
  return type(value) == 'string' and string.match(value, '^sp2 %a (%S+)') or nil
end

local function hold(id, first, last, state, since, locals, card, ttl_ms)
  redis.call('SET', lock, table.concat({'sp2 m', id, whole(first), whole(last), state, whole(since), locals, card}, ' '),
    'PX', ttl_ms)
end

local function forget(contender)
  redis.call('ZREM', line, contender)
  return redis.call('HDEL', tickets, contender) == 1
end

-- A ticket: CAME LAPSES WINDOW COUNT MODE SINCE LOCALS CARD. What the first live waiter's says, and who it is; waiters
-- whose tickets have lapsed are dropped on the way.
local function first_in_line(now_ms)
  local first = redis.call('ZRANGE', line, 0, 0)[1]
  while first do
    local lapses, window, since, locals, card, client = string.match(redis.call('HGET', tickets, first) or '',
      '^%d+ (%d+) (%d+) %d+ %a (%d+) (%d+) ((%x+) .*)$')
    if lapses and tonumber(lapses) > now_ms then return first, window, since, locals, card, client end
    forget(first)
    first = redis.call('ZRANGE', line, 0, 0)[1]
  end
  return nil
end

-- Tells the first live waiter that the lock may be had. False: nobody waits, or the asker is the first. Who is not
-- heard of loses its place here until it asks again.
local function wake_first(asker, channel_head, now_ms)
  local first, _, _, _, _, client = first_in_line(now_ms)
  while first and first ~= asker do
    if redis.call('PUBLISH', channel_head .. client, 'w ' .. first) > 0 then return true end
    forget(first)
    first, _, _, _, _, client = first_in_line(now_ms)
  end
  return false
end
