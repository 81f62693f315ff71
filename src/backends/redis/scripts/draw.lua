-- Up to `count` new tokens at the server's time `now` in ms, first and last: a block of several ends a millisecond before
-- the clock x 1,024, and where there is no room for two it is one token. A counter that was not there was lost (FLUSHALL,
-- a restart without persistence) and begins at the clock, above all that were drawn before: only single tokens get
-- beyond the blocks' end, and no server grants a thousand locks a millisecond.
local function draw(counter, count, now)
  local last = redis.call('INCRBY', counter, count)
  local first, block_end = last - count + 1, (now - 1) * 1024
  if last == tonumber(count) then
    first = now * 1024 + 1
    last = first
    redis.call('SET', counter, string.format('%.0f', last))
  elseif last > block_end and first < last then
    block_end = math.max(first, block_end)
    redis.call('INCRBY', counter, block_end - last)
    last = block_end
  end
  return first, last
end
