-- A holder takes a vote that this node does not give to anybody: one that it missed or lost. Keys: lock, mark. ARGV 1:
-- the mark's stamp, 2: the lock's value, 3: lease. Answers {1}, {0}: somebody has it, {-1, mark}.
local mark = redis.call('GET', KEYS[2]) or ''
if string.sub(mark, 1, 20) ~= ARGV[1] then return {-1, mark} end
if redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[3]) then return {1} end
return {0}
