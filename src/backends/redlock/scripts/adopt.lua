-- Changes a node's mark of membership. Keys: counter, mark. ARGV 1: the mark that is expected, empty for none, 2: the new
-- one, empty to take it away, 3: no token up to this may be given out any more, 4: 1 if the server's clock is such a
-- bound as well. Answers {1, mark}, or {0, mark} when another one was found.
local mark = redis.call('GET', KEYS[2]) or ''
if mark ~= ARGV[1] then return {0, mark} end
local floor = tonumber(ARGV[3])
if ARGV[4] == '1' then
  local time = redis.call('TIME')
  floor = math.max(floor, (time[1] * 1000 + math.floor(time[2] / 1000)) * 1024)
end
if tonumber(redis.call('GET', KEYS[1]) or 0) < floor then redis.call('SET', KEYS[1], string.format('%.0f', floor)) end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[2])
else
  redis.call('SET', KEYS[2], ARGV[2])
end
return {1, ARGV[2]}
