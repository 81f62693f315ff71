-- Takes the grant away whose block contains a token. ARGV 5: the token, 6: s (safe: a tombstone stays for the remaining
-- time) or n (now: the next one enters). Answers 1: done, {1, kind}: done, and there is more to serve, 0: nobody holds
-- it, 2: held under another token, 3: broken already, 4: held by another library's client.
--!include draw.lua
--!include places.lua
--!include common.lua
--!include one.lua
--!include many.lua

local token, at_once = tonumber(ARGV[5]), ARGV[6] == 'n'
local function matches(first, last, state)
  return tonumber(first) <= token and token <= tonumber(last) and (state ~= 't' or at_once)
end

local function break_one(value)
  local kind, id, first, last, state, since = string.match(value, '^sp1 (%a) (%x+) (%d+) (%d+) (%a) (%d+)')
  if not matches(first, last, state) then return state == 't' and 3 or 2 end
  if kind ~= 'e' then changes = '' end
  if state ~= 't' then
    tell(string.match(value, '^sp1 %a %x+ %d+ %d+ %a %d+ %d+ (%x+)'), 'l ' .. id)
  end
  local more = false
  if at_once then
    local served, _
    served, _, more = serve(kind)
    if not served then redis.call('DEL', lock) end
  else
    local remaining = math.max(redis.call('PTTL', lock), 1)
    -- A server that is full lets us write behind this.
    redis.call('PEXPIRE', lock, remaining)
    hold('sp1 ' .. kind .. ' ' .. string.rep('0', 32), first, last, 't', since, 0, '0 0 - - ', remaining)
  end
  tell_change()
  return more and {1, kind} or 1
end

local function break_many(kind)
  local now = now_ms()
  local permits = permits_in_use(kind, 1)
  drop_lapsed(now)
  local all = redis.call('EXISTS', lock) == 1 and redis.call('HGETALL', lock) or {}
  local held = false
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 1) ~= ':' then
      local expiry, first, last, mode, state, since, locals, card = holder_fields(all[i + 1])
      held = held or state ~= 't'
      if matches(first, last, state) then
        if state ~= 't' then tell(client_of(card), 'l ' .. all[i]) end
        remove_holder(all[i], all[i + 1])
        if not at_once then
          add_holder(kind, permits, 't' .. first, table.concat({expiry, first, last, mode, 't', since, 0, '0 0 - - '},
            ' '), tonumber(expiry), true)
        end
        local _, more = serve_many(kind, permits, now)
        return more and {1, kind} or 1
      end
    end
  end
  return #all == 0 and 0 or held and 2 or 3
end

local kind = kind_in_use()
if kind == nil then return 0 end
if kind == false then return 4 end
if kind == 's' or kind == 'n' then return break_many(kind) end
return break_one(redis.call('GET', lock))
