-- The clock and the counter of a member that has this very mark. Keys: counter, mark. ARGV 1: the mark's stamp. Answers
-- {1, server's time in us, counter or nothing}, {-1, mark}.
local mark = redis.call('GET', KEYS[2]) or ''
if string.sub(mark, 1, 20) ~= ARGV[1] then return {-1, mark} end
local time = redis.call('TIME')
return {1, string.format('%.0f', time[1] * 1000000 + time[2]), redis.call('GET', KEYS[1])}
