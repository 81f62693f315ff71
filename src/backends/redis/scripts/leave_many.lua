-- release or withdraw of a lock with many holders. ARGV 5: kind, 6: id, 7: r or w. Answers 1: left, 0: not there;
-- and 2 more when there is more to serve.
--!include draw.lua
--!include places.lua
--!include common.lua
--!include many.lua

local kind, id = ARGV[5], ARGV[6]
local used_as = kind_in_use()
if used_as ~= nil and used_as ~= kind then return (ARGV[7] == 'w' and forget_ticket(id)) and 1 or 0 end
local now = now_ms()
-- Before the lapsed go, since the key itself may go with the last of them.
local permits = permits_in_use(kind, 1)
local left = false
if used_as then
  drop_lapsed(now)
  local mine = redis.call('HGET', lock, id)
  if mine then
    remove_holder(id, mine)
    left = true
  end
end
if not left and ARGV[7] == 'w' then left = forget_ticket(id) end
-- This may come late, when others wait for the name as another kind: their queue is theirs to serve.
local more = false
if used_as or string.sub(redis.call('HGET', waiters, ':kind') or '', 1, 1) == kind then
  more = select(2, serve_many(kind, permits, now))
end
return (left and 1 or 0) + (more and 2 or 0)
