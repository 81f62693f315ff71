-- release or withdraw of a lock with one holder. ARGV 5: head ("sp1 KIND ID"), 6: kind, 7: id, 8: r or w.
-- Answers 1: left, 0: nothing of it was there.
--!include common.lua
--!include one.lua

local head, kind, id = ARGV[5], ARGV[6], ARGV[7]
local value = redis.pcall('GET', lock)
if type(value) == 'string' and string.sub(value, 1, #head) == head then
  if not serve(kind) then redis.call('DEL', lock) end
  tell_change()
  return 1
end
local left = ARGV[8] == 'w' and forget_ticket(id)
if not value and serve(kind) then tell_change() end
return left and 1 or 0
