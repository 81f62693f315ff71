-- Before the first grant on a connection: the counter is at least the server's clock x 1,024, so that tokens also grow
-- across a fail-over to a replica that lags, and after data was lost. Answers the counter as it was (-1: none); with
-- KEYS[2] also the store's name, which is ARGV[1] from now on where it had none: {counter, name}.
local before = tonumber(redis.call('GET', KEYS[1]) or -1)
local time = redis.call('TIME')
local floor = (time[1] * 1000 + math.floor(time[2] / 1000)) * 1024
local name = not KEYS[2] or redis.call('GET', KEYS[2])
if before < floor or not name then
  -- A server that is full lets us write behind this, and whoever holds a lock there has to be let in. SET lifts it again.
  redis.call('PEXPIRE', KEYS[1], 60000)
  redis.call('SET', KEYS[1], string.format('%.0f', math.max(before, floor)))
end
if not name then
  name = ARGV[1]
  redis.call('SET', KEYS[2], name)
end
if KEYS[2] then return {before, name} end
return before
