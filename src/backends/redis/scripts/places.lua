-- Places in a queue. Half a place further than it came stands who was passed over (common.lua).
local function passed_over(score)
  return string.find(score, '.', 1, true)
end

-- How many times as long a ticket lives, and its contender may be silent, since so many stand before it. Not that of one
-- that nobody hears: it would be let in all the same, and if it is dead each like it costs the others a claim window.
local places_a_stretch, longest_stretch = 128, 32

local function ticket_stretch(queue, ahead)
  local stretch = math.min(math.floor(ahead / places_a_stretch), longest_stretch)
  if stretch <= 1 or passed_over(redis.call('ZRANGE', queue, ahead, ahead, 'WITHSCORES')[2]) then return 1 end
  return stretch
end
