-- Lifts the counter to the token that a holder got from a majority, while it holds this node's vote. Keys: lock,
-- counter, mark. ARGV 1: the mark's stamp, 2: id, 3: token. Answers {1}, {0}: another holds it, {-1, mark}, {-2}: too far
-- to be believed without another look; adopt.lua does it.
local mark = redis.call('GET', KEYS[3]) or ''
if string.sub(mark, 1, 20) ~= ARGV[1] then return {-1, mark} end
local value = redis.pcall('GET', KEYS[1])
local id = type(value) == 'string' and string.match(value, '^sp2 %a (%S+)')
if id ~= ARGV[2] then return {0} end
local have, wanted = tonumber(redis.call('GET', KEYS[2]) or 0), tonumber(ARGV[3])
if wanted - have > 1099511627776 then return {-2} end
if have < wanted then
  redis.call('PEXPIRE', KEYS[2], 60000)  -- a node that is full lets us write behind this; SET lifts it again
  redis.call('SET', KEYS[2], ARGV[3])
end
return {1}
