-- Replaces what an election's entry says. ARGV 1: publish, 2: the channel of changes, 3: head, 4: the value.
-- Answers 1: done, 0: it is not the holder.
local value = redis.pcall('GET', KEYS[1])
local head = ARGV[3]
if type(value) ~= 'string' or string.sub(value, 1, #head) ~= head then return 0 end
local kept, before = string.match(value, '^( %d+ %d+ %a %d+ %d+ %S+ %S+ %S+ %S+) (.*)$', #head + 1)
if before ~= ARGV[4] then
  redis.call('SET', KEYS[1], head .. kept .. ' ' .. ARGV[4], 'KEEPTTL')
  if ARGV[2] ~= '' then redis.call(ARGV[1], ARGV[2], 'c') end
end
return 1
