-- Gives one node's vote back. ARGV 1: channel head, 2: contender, 3: id, 4: h (hand over to the first waiter) or p, 5: a
-- nonce for the hand-over, 6: w (withdraw: its ticket and what was handed over to it go as well) or r. Answers 1: it was
-- there, 0: it was not.
local value = redis.pcall('GET', KEYS[1])
if ARGV[6] == 'r' and type(value) == 'string' and string.sub(value, 1, #ARGV[3] + 7) == 'sp2 m ' .. ARGV[3] .. ' ' and
  redis.call('EXISTS', KEYS[2]) == 0 then
  -- The common case, before anything else is set up: nobody waits.
  redis.call('DEL', KEYS[1])
  return 1
end

--!include common.lua

local contender, nonce, withdraw = ARGV[2], ARGV[5], ARGV[6] == 'w'
local id = id_in(value)
local now_ms = math.floor(now_us() / 1000)
local there = withdraw and forget(contender)
if not (id and (id == ARGV[3] or withdraw and string.sub(id, 1, #contender + 1) == contender .. '|')) then
  if not value then wake_first(nil, ARGV[1], now_ms) end
  return there and 1 or 0
end
if ARGV[4] == 'h' then
  local first, window, _, locals, card, client = first_in_line(now_ms)
  while first do
    if redis.call('PUBLISH', ARGV[1] .. client, 'h ' .. first .. ' ' .. nonce) > 0 then
      forget(first)  -- first: a node that is full lets us write behind it
      hold(first .. '|' .. nonce, 0, 0, 'p', now_ms, locals, card, window)
      return 1
    end
    forget(first)
    first, window, _, locals, card, client = first_in_line(now_ms)
  end
  redis.call('DEL', lock)
else
  redis.call('DEL', lock)
  wake_first(nil, ARGV[1], now_ms)
end
return 1
