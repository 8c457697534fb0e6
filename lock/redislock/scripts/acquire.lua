-- ARGV: id, owner, keys, TTL, maximum hold, process, whether to wait, whether it may have been asked before, and the ids
-- that may be overtaken.
local id, owner, joined, ttl, hold = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local keys, ticket = split(joined), nil
proc = ARGV[6]
if ARGV[8] == '1' then
  local mine = grant(id)
  if mine then return answer(take(mine)) end
  local w = waiting(id)
  if w and #ARGV == 8 then return answer { 2, look = look(w) } end
  if w then ticket = w.ticket end
end
local over = {}
for i = 9, #ARGV do over[ARGV[i]] = true end
local vacant, behind = true, nil
for _, k in ipairs(keys) do
  if holder(k) then vacant = false end
  local first = head(k)
  if first and #ARGV > 8 then
    local to = ticket and '(' .. int(ticket) or '+inf'
    for _, other in ipairs(redis.call('ZRANGEBYSCORE', S .. ':q:' .. k, '-inf', to)) do
      local w = not over[other] and waiting(other)
      if w then behind = w.owner end
    end
  elseif first then
    behind = behind or first.owner
  end
end
if vacant and not behind then
  if ticket then
    unqueue(id, owner, joined)
    redis.call('DEL', S .. ':w:' .. id)
  end
  return answer(give(id, owner, joined, ttl, hold, shorter(ttl, hold)))
end
if ARGV[7] ~= '1' then
  local hint = 0
  if vacant and behind ~= owner and reaches(behind, owner, true) then hint = 2 end
  return answer { 0, look = hint }
end
if not ticket then
  ticket = redis.call('HINCRBY', S, 'ticket', 1)
  redis.call('HSET', S .. ':w:' .. id, 'owner', owner, 'keys', joined, 'ttl', ttl, 'hold', hold, 'ticket', ticket,
    'since', now, 'alive', now + ALIVE, 'proc', proc)
  redis.call('PEXPIRE', S .. ':w:' .. id, KEEP)
  for _, k in ipairs(keys) do
    redis.call('ZADD', S .. ':q:' .. k, ticket, id)
    redis.call('PEXPIRE', S .. ':q:' .. k, KEEP)
    local g = peek(k)
    keep(k, g and g.exp or 0)
  end
  redis.call('ZADD', S .. ':waiters', ticket, id)
  redis.call('PEXPIRE', S .. ':waiters', KEEP)
  redis.call('SADD', S .. ':o:' .. owner, id)
  redis.call('PEXPIRE', S .. ':o:' .. owner, KEEP)
end
return answer { 2, look = look { id = id, owner = owner, keys = keys } }
