-- Claim and renewal: extends the lock if this id holds it; with ARGV 4 above zero draws so many tokens. ARGV 1: the mark's stamp,
-- 2: id, 3: lease, 4: tokens, 5: local waiters. Answers {1, last token or 0}, {0, 1 if somebody holds it}, {-1, mark}.
--!include common.lua

local mark = redis.call('GET', member) or ''
if string.sub(mark, 1, 20) ~= ARGV[1] then return {-1, mark} end
local value = redis.pcall('GET', lock)
if id_in(value) ~= ARGV[2] then return {0, value and 1 or 0} end
local first, last, since, locals, card = string.match(value, '^sp2 %a %S+ (%d+) (%d+) %a (%d+) (%d+) (.*)$')
-- First in any case: behind a write that takes no memory a node that is full lets a script write what may take some.
redis.call('PEXPIRE', lock, ARGV[3])
if ARGV[4] == '0' then
  if locals ~= ARGV[5] then
    hold(ARGV[2], tonumber(first), tonumber(last), 'c', tonumber(since), ARGV[5], card, ARGV[3])
  end
  return {1, 0}
end
last = redis.call('INCRBY', counter, ARGV[4])
hold(ARGV[2], last - ARGV[4] + 1, last, 'c', tonumber(since), ARGV[5], card, ARGV[3])
return {1, last}
