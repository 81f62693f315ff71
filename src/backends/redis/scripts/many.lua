-- Locks with many holders (shared_mutex: s, semaphore: n): a hash, whose presence keeps others' locks out as well.
-- ID -> EXPIRY FIRST LAST MODE STATE SINCE LOCALS CARD; a tombstone's id is t and its first token. Beside them:
-- ':kind', ':permits', ':bars' (how many keep readers out: writers and tombstones), ':soonest' (nothing expires before),
-- ':latest' (when the whole key may go).
local holders_meta = 5

local function holder_fields(record)
  return string.match(record, '^(%d+) (%d+) (%d+) (%a) (%a) (%d+) (%d+) (.*)$')
end

local function holder_count()
  return math.max(redis.call('HLEN', lock) - holders_meta, 0)
end

local function bars(mode, state)
  return mode == 'x' or state == 't'
end

local function add_holder(kind, permits, id, record, expiry, barring)
  if redis.call('EXISTS', lock) == 0 then
    redis.call('HSET', lock, ':kind', kind, ':permits', permits, ':bars', 0, ':soonest', whole(expiry), ':latest', 0)
  elseif expiry < tonumber(redis.call('HGET', lock, ':soonest')) then
    redis.call('HSET', lock, ':soonest', whole(expiry))
  end
  redis.call('HSET', lock, id, record)
  if barring then redis.call('HINCRBY', lock, ':bars', 1) end
  if expiry > tonumber(redis.call('HGET', lock, ':latest')) then
    redis.call('HSET', lock, ':latest', whole(expiry))
    redis.call('PEXPIREAT', lock, whole(expiry))
  end
end

-- The key goes when its last holder's time is over, also if nobody comes to see. With many holders that is not worth
-- a look at all of them: it is set right when they have become few.
local few_holders = 16

local function set_latest_right()
  local latest = 0
  local all = redis.call('HGETALL', lock)
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 1) ~= ':' then latest = math.max(latest, tonumber(string.match(all[i + 1], '^%d+'))) end
  end
  redis.call('HSET', lock, ':latest', whole(latest))
  redis.call('PEXPIREAT', lock, whole(latest))
end

local function remove_holder(id, record)
  local expiry, _, _, mode, state = holder_fields(record)
  redis.call('HDEL', lock, id)
  if bars(mode, state) then redis.call('HINCRBY', lock, ':bars', -1) end
  local left = holder_count()
  if left == 0 then
    redis.call('DEL', lock)
  elseif left <= few_holders and tonumber(expiry) >= tonumber(redis.call('HGET', lock, ':latest')) then
    set_latest_right()
  end
end

-- What has lapsed goes. Looks at all holders only when one may have.
local function drop_lapsed(now)
  if tonumber(redis.call('HGET', lock, ':soonest')) > now then return end
  local soonest
  local all = redis.call('HGETALL', lock)
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 1) ~= ':' then
      local expiry = tonumber(string.match(all[i + 1], '^%d+'))
      if expiry <= now then
        remove_holder(all[i], all[i + 1])
      elseif not soonest or expiry < soonest then
        soonest = expiry
      end
    end
  end
  if soonest then
    -- Taken out first, which a server lets us do that is full; then it also lets us write.
    redis.call('HDEL', lock, ':soonest')
    redis.call('HSET', lock, ':soonest', whole(soonest))
  end
end

local function may_enter(kind, permits, mode)
  if kind == 'n' then return holder_count() < permits end
  if mode == 's' then return tonumber(redis.call('HGET', lock, ':bars') or 0) == 0 end
  return holder_count() == 0
end

-- The stored number of permits wins over anybody's.
local function permits_in_use(kind, asked)
  if kind ~= 'n' then return 1 end
  local stored = redis.pcall('HGET', lock, ':permits')
  if type(stored) ~= 'string' then
    local head = redis.call('HGET', waiters, ':kind')
    stored = head and string.match(head, '^n(%d+)$')
  end
  return tonumber(stored or asked)
end

-- Lets in whoever stands at the front and may enter, one after the other. True when the asker is among them; it is
-- told, not granted: it is here, and gets its whole lease. The second answer is true when it had to stop before it came
-- to one that may not enter: there is more to serve.
local function serve_many(kind, permits, now, asker)
  local looked_at = 0
  local head, place = unpack(redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES'))
  while head do
    if looked_at >= most_served then return false, true end
    looked_at = looked_at + 1
    local ticket = redis.call('HGET', waiters, head)
    local _, lapses, window, count, mode, _, locals, card
    if ticket then _, lapses, window, count, mode, _, locals, card = ticket_fields(ticket) end
    if not ticket or tonumber(lapses) <= now then
      redis.call('ZREM', queue, head)
      redis.call('HDEL', waiters, head)
    elseif not may_enter(kind, permits, mode) then
      break
    elseif head == asker then
      redis.call('ZREM', queue, head)
      redis.call('HDEL', waiters, head)
      tidy()
      return true, false
    else
      redis.call('ZREM', queue, head)
      local first, last = draw(counter, count, now)
      if tell(client_of(card), table.concat({'g', head, whole(first), whole(last), window, permits}, ' ')) > 0 or
        passed_over(place) then
        redis.call('HDEL', waiters, head)
        local expiry = now + window
        add_holder(kind, permits, head, table.concat({whole(expiry), whole(first), whole(last), mode, 'p', whole(now),
          locals, card}, ' '), expiry, mode == 'x')
      else
        set_aside(head, lapses)
      end
    end
    head, place = unpack(redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES'))
  end
  tidy()
  return false, false
end

-- The kind that the name is in use as; nil: it is free; false: it belongs to another library.
local function kind_in_use()
  local kind = redis.pcall('HGET', lock, ':kind')
  if type(kind) == 'string' then return kind end
  if type(kind) == 'table' then
    local value = redis.pcall('GET', lock)
    if type(value) == 'string' and string.sub(value, 1, 4) == 'sp1 ' then return string.sub(value, 5, 5) end
    return false
  end
  if redis.call('EXISTS', lock) == 1 then return false end
  return nil
end
