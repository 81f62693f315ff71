-- What all scripts share. Keys: the lock, its queue (sorted set: id -> place), its waiters (hash: id -> ticket), those set
-- aside (sorted set: id -> when the ticket lapses), the counter of tokens.
local lock, queue, waiters, absent, counter = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local publish, channel_head, channel_tail, changes = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function whole(number)
  return string.format('%.0f', number)
end

-- How many heard it: a client that is gone does not.
local function tell(client, message)
  return redis.call(publish, channel_head .. client .. channel_tail, message)
end

local function tell_change()
  if changes ~= '' then redis.call(publish, changes, 'c') end
end

-- A ticket: PLACE LAPSES WINDOW COUNT MODE SINCE LOCALS CARD, where a card is CLIENT PID HOST LABEL VALUE.
local function ticket_fields(ticket)
  return string.match(ticket, '^(%d+) (%d+) (%d+) (%d+) (%a) (%d+) (%d+) (.*)$')
end

local function client_of(card)
  return string.match(card, '^%x+')
end

-- So many waiters a script works for at most, since the server does nothing else meanwhile. What is left it tells ("and
-- there is more to serve"): then whoever called it goes on with another call. If that one has died, the next question of
-- any waiter goes on.
local most_served = 128

-- Beside the tickets, `waiters` has this many fields: ':next' and ':kind'.
local waiters_meta = 2

local function tidy()
  if redis.call('HLEN', waiters) <= waiters_meta then redis.call('DEL', waiters) end
end

-- Nobody listens for this waiter at the moment. It loses this turn but not its place, which it takes again when it asks
-- before its ticket lapses; half a place further, which says that it loses no other turn: it lives. The key lives as long
-- as that of the tickets, which are found through it.
local function set_aside(id, lapses)
  redis.call('ZADD', absent, lapses, id)
  redis.call('PEXPIRE', absent, math.max(redis.call('PTTL', waiters), 1))
end

-- Such a waiter (passed_over) may be let in without hearing of it: when it is the first it asks this often.
local unheard_poll_ms = 100

-- The tickets of the dead go: of those set aside, and of those in the queue, so many at a time. Of a longer queue the
-- clock chooses the part.
local most_swept = 32
-- Where tickets far back live longer, and with them the keys, every so manieth newcomer sweeps.
local newcomers_a_sweep = 16

local function sweep(now)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', absent, '-inf', now, 'LIMIT', 0, most_swept)) do
    redis.call('ZREM', absent, id)
    redis.call('HDEL', waiters, id)
  end
  local tickets = redis.call('HLEN', waiters) - waiters_meta
  local from = tickets > most_swept and now % tickets or 0
  for _, id in ipairs(redis.call('ZRANGE', queue, from, from + most_swept - 1)) do
    local lapses = string.match(redis.call('HGET', waiters, id) or '', '^%d+ (%d+)')
    if not lapses or tonumber(lapses) <= now then
      redis.call('ZREM', queue, id)
      redis.call('HDEL', waiters, id)
    end
  end
end

-- Leaves the queue, wherever the ticket is. False: there was none.
local function forget_ticket(id)
  if redis.call('HDEL', waiters, id) == 0 then return false end
  redis.call('ZREM', queue, id)
  redis.call('ZREM', absent, id)
  tidy()
  return true
end

-- Stands in line: at the end, or with `ticket` at the place it has. Says how many stand before it, and how many times as
-- long as asked its ticket lives: a first question's just once, since it may be late, and nobody comes to withdraw it.
local function stand_in_line(id, ticket, kind, now, ticket_ms, window_ms, count, mode, locals, card)
  local place, since
  if ticket then
    local _
    place, _, _, _, _, since = ticket_fields(ticket)
    if redis.call('ZREM', absent, id) == 1 then
      redis.call('ZADD', queue, place + 0.5, id)
    else
      redis.call('ZADD', queue, 'NX', place, id)
    end
  else
    place, since = redis.call('HINCRBY', waiters, ':next', 1), now
    redis.call('ZADD', queue, place, id)
  end
  local ahead = redis.call('ZRANK', queue, id)
  local stretch = ticket and ticket_stretch(queue, ahead) or 1
  local lives_ms = ticket_ms * stretch
  redis.call('HSET', waiters, id, table.concat({place, whole(now + lives_ms), window_ms, count, mode,
    whole(since), locals, card}, ' '))
  -- Not at every question: the keys live a little longer than the tickets in them. Heartbeats (beat.lua) wait longer with
  -- that, so that newcomers sweep, also where others only wait: it is newcomers who can leave more and more behind.
  local left = redis.call('PTTL', queue)
  -- A new queue; tickets that are set aside may be of another kind, whose time is over.
  if left < 0 or place == 1 then redis.call('HSET', waiters, ':kind', kind) end
  local ends_soon = left < lives_ms * 1.125
  if ends_soon then
    -- Those set aside may have tickets that live longer than any in a new queue.
    local ttl = whole(math.max(redis.call('PTTL', waiters), lives_ms * 1.25))
    redis.call('PEXPIRE', queue, ttl)
    redis.call('PEXPIRE', waiters, ttl)
    redis.call('PEXPIRE', absent, ttl)
  end
  if ends_soon or (not ticket and left > ticket_ms * 1.25 and place % newcomers_a_sweep == 0) then
    sweep(now)
    ahead = redis.call('ZRANK', queue, id)
  end
  return ahead, stretch
end
