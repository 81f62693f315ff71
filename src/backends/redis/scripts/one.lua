-- Locks with one holder (mutex, election): a plain string, so that others' locks and ours keep each other out.
-- sp1 KIND ID FIRST LAST STATE SINCE LOCALS CARD, where STATE is c (claimed), p (provisional) or t (a tombstone).
local function hold(head, first, last, state, since, locals, card, ttl_ms)
  redis.call('SET', lock, table.concat({head, whole(first), whole(last), state, whole(since), locals, card}, ' '),
    'PX', ttl_ms)
end

-- The lock is free: gives it to the first live waiter. Says who that was and its last token, or nil. The asker itself
-- is told, not granted: it is here, and gets its whole lease. `popped`: who was taken off the queue already. The third
-- answer is true when it had to stop before it came to a live one: nobody has it yet, and there is more to serve.
local function serve(kind, asker, popped)
  local now
  local looked_at = 0
  popped = popped or redis.call('ZPOPMIN', queue)
  while popped[1] do
    local id = popped[1]
    local ticket = redis.call('HGET', waiters, id)
    if ticket then
      now = now or now_ms()
      local _, lapses, window, count, _, _, locals, card = ticket_fields(ticket)
      if tonumber(lapses) <= now then
        redis.call('HDEL', waiters, id)
      elseif id == asker then
        redis.call('HDEL', waiters, id)
        tidy()
        return id
      else
        local first, last = draw(counter, count, now)
        if tell(client_of(card), table.concat({'g', id, whole(first), whole(last), window, 1}, ' ')) > 0 or
          passed_over(popped[2]) then
          hold('sp1 ' .. kind .. ' ' .. id, first, last, 'p', now, locals, card, window)
          redis.call('HDEL', waiters, id)
          tidy()
          return id, last
        end
        set_aside(id, lapses)
      end
    end
    looked_at = looked_at + 1
    if looked_at >= most_served and redis.call('EXISTS', queue) == 1 then return nil, nil, true end
    popped = redis.call('ZPOPMIN', queue)
  end
  if now then tidy() end
  return nil
end
