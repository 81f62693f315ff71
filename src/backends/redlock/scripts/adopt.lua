-- Changes a node's mark of membership, or brings its counter up. Keys: counter, mark. ARGV 1: the mark that is expected,
-- empty for none, 2: the new one, 3: no token up to this may be given out any more. Answers {1, mark}, or {0, mark}
-- when another one was found.
local mark = redis.call('GET', KEYS[2]) or ''
if mark ~= ARGV[1] then return {0, mark} end
if tonumber(redis.call('GET', KEYS[1]) or 0) < tonumber(ARGV[3]) then redis.call('SET', KEYS[1], ARGV[3]) end
if mark ~= ARGV[2] then redis.call('SET', KEYS[2], ARGV[2]) end
return {1, ARGV[2]}
