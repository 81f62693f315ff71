-- release or withdraw of a lock with one holder. ARGV 5: head ("sp1 KIND ID"), 6: kind, 7: id, 8: r or w.
-- Answers 1: left, 0: nothing of it was there; and 2 more when there is more to serve.
local value = redis.pcall('GET', KEYS[1])
local mine = type(value) == 'string' and string.sub(value, 1, #ARGV[5]) == ARGV[5]
local popped = mine and redis.call('ZPOPMIN', KEYS[2])
if mine and not popped[1] then
  -- The common case, before anything else is set up: nobody waits.
  redis.call('DEL', KEYS[1])
  if ARGV[4] ~= '' then redis.call(ARGV[1], ARGV[4], 'c') end
  return 1
end

--!include draw.lua

if mine then
  -- The usual hand-off, likewise: the first waiter lives and listens.
  local next_id = popped[1]
  local lapses, window, count, locals, card, client = string.match(redis.call('HGET', KEYS[3], next_id) or '',
    '^%d+ (%d+) (%d+) (%d+) %a %d+ (%d+) ((%x+) .*)$')
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if lapses and tonumber(lapses) > now then
    local tokens = string.format('%.0f %.0f', draw(KEYS[5], count, now))
    if redis.call(ARGV[1], ARGV[2] .. client .. ARGV[3], 'g ' .. next_id .. ' ' .. tokens .. ' ' .. window .. ' 1') > 0 or
      string.find(popped[2], '.', 1, true) then  -- passed over already (common.lua)
      redis.call('SET', KEYS[1], string.format('sp1 %s %s %s p %.0f %s ', ARGV[6], next_id, tokens, now, locals) .. card,
        'PX', window)
      redis.call('HDEL', KEYS[3], next_id)
      if redis.call('HLEN', KEYS[3]) <= 2 then redis.call('DEL', KEYS[3]) end
      if ARGV[4] ~= '' then redis.call(ARGV[1], ARGV[4], 'c') end
      return 1
    end
  end
end

--!include places.lua
--!include common.lua
--!include one.lua

local kind, id = ARGV[6], ARGV[7]
if mine then
  local served, _, more = serve(kind, nil, popped)
  if not served then redis.call('DEL', lock) end
  tell_change()
  return more and 3 or 1
end
local left = ARGV[8] == 'w' and forget_ticket(id)
-- This may come late, when others use the name as another kind: their queue is theirs to serve.
local more = false
if not value and redis.call('HGET', waiters, ':kind') == kind then
  local served, _
  served, _, more = serve(kind)
  if served then tell_change() end
end
return (left and 1 or 0) + (more and 2 or 0)
