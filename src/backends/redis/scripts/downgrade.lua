-- A writer becomes a reader, keeps its token and is good for a whole lease; readers at the front enter.
-- ARGV 5: id, 6: lease, 7: local waiters. Answers {1, first, last, remaining, 1 when there is more to serve}
-- or {0}: gone.
--!include draw.lua
--!include places.lua
--!include common.lua
--!include many.lua

local id = ARGV[5]
if kind_in_use() ~= 's' then return {0} end
local now = now_ms()
drop_lapsed(now)
local mine = redis.call('HGET', lock, id)
if not mine then return {0} end
local _, first, last, mode, _, since, _, card = holder_fields(mine)
remove_holder(id, mine)
local expiry = now + ARGV[6]
add_holder('s', 1, id, table.concat({whole(expiry), first, last, 's', 'c', since, ARGV[7], card}, ' '), expiry, false)
local more = mode == 'x' and select(2, serve_many('s', 1, now))
return {1, tonumber(first), tonumber(last), tonumber(ARGV[6]), more and 1 or 0}
