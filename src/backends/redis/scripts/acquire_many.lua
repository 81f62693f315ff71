-- acquire of a lock with many holders; also a waiter's heartbeat.
-- ARGV 5: kind, 6: id, 7: lease, 8: claim window, 9: ticket, 10: may wait, 11: tokens, 12: local waiters,
-- 13: may be known here, 14: card, 15: mode (x or s), 16: permits.
-- Answers {1, first, last, remaining, provisional, permits}, {2, ask again after or -1, newest token, foreign holder,
-- first in line, permits, how many stand before it, how many times as long its ticket lives}, {3} held, {4, kind} in use
-- as another kind, {5}: many had to be let in or passed over first, and there are more of them; nothing was done for this
-- one, ask again at once.
--!include draw.lua
--!include places.lua
--!include common.lua
--!include many.lua

local kind, id, locals, card, mode = ARGV[5], ARGV[6], ARGV[12], ARGV[14], ARGV[15]
local used_as = kind_in_use()
if used_as and used_as ~= kind then return {4, used_as} end
local waited_as = redis.call('HGET', waiters, ':kind')
if waited_as and string.sub(waited_as, 1, 1) ~= kind then return {4, string.sub(waited_as, 1, 1)} end

local now = now_ms()
if used_as then
  drop_lapsed(now)
  local mine = redis.call('HGET', lock, id)
  if mine then
    local expiry, first, last, _, state = holder_fields(mine)
    return {1, tonumber(first), tonumber(last), tonumber(expiry) - now, state == 'p' and 1 or 0,
      permits_in_use(kind, ARGV[16])}
  end
end

-- Also for a contender that asks for the first time: an old connection may bring its question after a later one.
local ticket = redis.call('HGET', waiters, id)
if ticket then
  local _, lapses = ticket_fields(ticket)
  if tonumber(lapses) <= now then
    forget_ticket(id)
    ticket = false
  end
end

local permits = permits_in_use(kind, ARGV[16])
if used_as ~= false then
  local let_in, more = serve_many(kind, permits, now, id)
  if more then return {5} end
  if not let_in then
    -- Whoever stands in the queue goes first; one that was set aside has its place there.
    permits = permits_in_use(kind, ARGV[16])
    let_in = redis.call('EXISTS', queue) == 0 and may_enter(kind, permits, mode)
  end
  if let_in then
    forget_ticket(id)
    local first, last = draw(counter, ARGV[11], now)
    local expiry = now + ARGV[7]
    add_holder(kind, permits, id, table.concat({whole(expiry), whole(first), whole(last), mode, 'c', whole(now),
      locals, card}, ' '), expiry, mode == 'x')
    return {1, first, last, tonumber(ARGV[7]), 0, permits}
  end
end

if ARGV[10] ~= '1' then return {3} end
local ahead, stretch = stand_in_line(id, ticket, kind == 'n' and 'n' .. permits or kind, now, tonumber(ARGV[9]), ARGV[8],
  ARGV[11], mode, locals, card)
local ask_again = -1
if ahead == 0 then
  if passed_over(redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')[2]) then
    ask_again = unheard_poll_ms
  elseif used_as == false then
    ask_again = redis.call('PTTL', lock)
  else
    local soonest = redis.call('HGET', lock, ':soonest')
    if soonest then ask_again = math.max(tonumber(soonest) - now, 1) end
  end
end
return {2, ask_again, tonumber(redis.call('GET', counter) or 0), used_as == false and 1 or 0, ahead == 0 and 1 or 0,
  permits, ahead, stretch}
