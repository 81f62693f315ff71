-- release or withdraw of a lock with one holder. ARGV 5: head ("sp1 KIND ID"), 6: kind, 7: id, 8: r or w.
-- Answers 1: left, 0: nothing of it was there.
local value = redis.pcall('GET', KEYS[1])
local mine = type(value) == 'string' and string.sub(value, 1, #ARGV[5]) == ARGV[5]
local popped = mine and redis.call('ZPOPMIN', KEYS[2])
if mine and not popped[1] then
  -- The common case, before anything else is set up: nobody waits.
  redis.call('DEL', KEYS[1])
  if ARGV[4] ~= '' then redis.call(ARGV[1], ARGV[4], 'c') end
  return 1
end

--!include common.lua
--!include one.lua

local kind, id = ARGV[6], ARGV[7]
if mine then
  if not serve(kind, nil, popped) then redis.call('DEL', lock) end
  tell_change()
  return 1
end
local left = ARGV[8] == 'w' and forget_ticket(id)
if not value and serve(kind) then tell_change() end
return left and 1 or 0
