-- acquire of a lock with one holder; also a waiter's heartbeat.
-- ARGV 5: head ("sp1 KIND ID"), 6: kind, 7: id, 8: lease, 9: claim window, 10: ticket, 11: may wait, 12: tokens,
-- 13: local waiters, 14: may be known here, 15: card.
-- Answers {1, first, last, remaining, provisional}, {2, ask again after or -1, newest token, foreign holder, first in
-- line, 1, how many stand before it, how many times as long its ticket lives}, {3} held, {4, kind} in use as another kind,
-- {5}: many had to be passed over first, and there are more of them; nothing was done for this one, ask again at once.
local found = redis.call('EXISTS', KEYS[1], KEYS[2])
if found == 0 and ARGV[14] ~= '1' then
  -- The common case, before anything else is set up: free, and nobody waits. The card may hold zero bytes, at which
  -- string.format would cut it off.
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  -- As draw.lua does it, without the price of a function.
  local last = redis.call('INCRBY', KEYS[5], ARGV[12])
  local first, block_end = last - ARGV[12] + 1, (now - 1) * 1024
  if last == tonumber(ARGV[12]) then
    first = now * 1024 + 1
    last = first
    redis.call('SET', KEYS[5], string.format('%.0f', last))
  elseif last > block_end and first < last then
    block_end = math.max(first, block_end)
    redis.call('INCRBY', KEYS[5], block_end - last)
    last = block_end
  end
  redis.call('SET', KEYS[1], string.format('%s %.0f %.0f c %.0f %s ', ARGV[5], first, last, now, ARGV[13]) ..
    ARGV[15], 'PX', ARGV[8])
  if ARGV[4] ~= '' then redis.call(ARGV[1], ARGV[4], 'c') end
  return {1, first, last, tonumber(ARGV[8]), 0}
end

local stands_in_line
if ARGV[14] ~= '1' and ARGV[11] == '1' then
  -- The usual wait, likewise: one of ours holds it, and this contender is new. That is looked up, not believed: an old
  -- connection may bring a contender's first question after a later one. Nobody is set aside, or it is too early to sweep.
  local value = redis.pcall('GET', KEYS[1])
  local usual = type(value) == 'string' and string.sub(value, 1, 6) == 'sp1 ' .. ARGV[6] .. ' ' and
    string.sub(value, 1, #ARGV[5]) ~= ARGV[5] and redis.call('HEXISTS', KEYS[3], ARGV[7]) == 0
  local queue_lives = usual and found == 2 and redis.call('PTTL', KEYS[2])
  if queue_lives then
    usual = queue_lives >= ARGV[10] * 1.125
  elseif usual then
    usual = redis.call('EXISTS', KEYS[4]) == 0
  end
  if usual then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local place = redis.call('HINCRBY', KEYS[3], ':next', 1)
    if place == 1 then redis.call('HSET', KEYS[3], ':kind', ARGV[6]) end
    redis.call('HSET', KEYS[3], ARGV[7], string.format('%d %.0f %s %s x %.0f %s ', place, now + ARGV[10], ARGV[9],
      ARGV[12], now, ARGV[13]) .. ARGV[15])
    redis.call('ZADD', KEYS[2], place, ARGV[7])
    if found == 1 then
      local ttl = string.format('%.0f', ARGV[10] * 1.25)
      redis.call('PEXPIRE', KEYS[2], ttl)
      redis.call('PEXPIRE', KEYS[3], ttl)
    end
    local newest = tonumber(string.match(value, '^sp1 %a %x+ %d+ (%d+)'))
    if found == 1 then return {2, redis.call('PTTL', KEYS[1]), newest, 0, 1} end
    stands_in_line = {2, -1, newest, 0, 0}
    -- Tickets far back live longer, and with them the keys: then newcomers sweep by their number (common.lua).
    if queue_lives <= ARGV[10] * 1.25 or place % 16 > 0 then return stands_in_line end
  end
end

--!include draw.lua
--!include places.lua
--!include common.lua
--!include one.lua

if stands_in_line then
  sweep(now_ms())
  return stands_in_line
end

local head, kind, id, locals, card = ARGV[5], ARGV[6], ARGV[7], ARGV[13], ARGV[15]
local value = redis.pcall('GET', lock)
local foreign, newest = false, nil

if type(value) == 'table' then
  -- Not a string: a lock of ours with many holders, or another library's.
  local other = redis.pcall('HGET', lock, ':kind')
  if type(other) == 'string' then return {4, other} end
  foreign = true
elseif value then
  if string.sub(value, 1, 4) ~= 'sp1 ' then
    foreign = true
  elseif string.sub(value, 5, 5) ~= kind then
    return {4, string.sub(value, 5, 5)}
  elseif string.sub(value, 1, #head) == head then
    local first, last, state = string.match(value, '^sp1 %a %x+ (%d+) (%d+) (%a)')
    return {1, tonumber(first), tonumber(last), redis.call('PTTL', lock), state == 'p' and 1 or 0}
  else
    newest = tonumber(string.match(value, '^sp1 %a %x+ %d+ (%d+)'))
  end
end

local ticket = false
if not value then
  -- It lapsed, or was released by somebody who does not know of the queue.
  local other = redis.call('HGET', waiters, ':kind')
  if other and other ~= kind then return {4, other} end
  local served, last, more = serve(kind, id)
  if more then return {5} end
  if not served or served == id then
    forget_ticket(id)
    local now, first = now_ms(), nil
    first, last = draw(counter, ARGV[12], now)
    hold(head, first, last, 'c', now, locals, card, ARGV[8])
    tell_change()
    return {1, first, last, tonumber(ARGV[8]), 0}
  end
  tell_change()
  newest = last
elseif found == 2 and not newest then
  local other = redis.call('HGET', waiters, ':kind')
  if other and other ~= kind then return {4, other} end
end

if ARGV[11] ~= '1' then return {3} end
local now = now_ms()
-- Also for a contender that asks for the first time: an old connection may bring its question after a later one.
ticket = redis.call('HGET', waiters, id)
if ticket then
  local _, lapses = ticket_fields(ticket)
  if tonumber(lapses) <= now then
    forget_ticket(id)
    ticket = false
  end
end
local ahead, stretch = stand_in_line(id, ticket, kind, now, tonumber(ARGV[10]), ARGV[9], ARGV[12], 'x', locals, card)
local ask_again = -1
if ahead == 0 then
  local unheard = passed_over(redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')[2])
  ask_again = unheard and unheard_poll_ms or redis.call('PTTL', lock)
end
return {2, ask_again, newest or tonumber(redis.call('GET', counter) or 0), foreign and 1 or 0, ahead == 0 and 1 or 0, 1,
  ahead, stretch}
