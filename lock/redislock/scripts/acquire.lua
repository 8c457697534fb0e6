-- ARGV: id; what follows the token in a grant; the hash and its time to live where the usual way was open; whether to wait,
-- whether it may have been asked before (1 or 0 each) and the process, in one; and the ids that may be overtaken.
local id = ARGV[1]
local ttl, hold, owner, joined = string.match(ARGV[2], '^\n(%d+)\n(%d+)\n0\n0\n0\n([^\n]*)\n(.*)$')
local wait, known = string.sub(ARGV[5], 1, 1) == '1', string.sub(ARGV[5], 2, 2) == '1'
local keys, ticket = split(joined), nil
ttl, hold, proc = tonumber(ttl), tonumber(hold), string.sub(ARGV[5], 3)
if known then
  local mine = grant(id, keys[1])
  local w = waiting(id)
  if mine or w then must() end
  if mine then return answer(take(mine)) end
  if w and #ARGV == 5 then return answer { 2, look = look(w) } end
  if w then ticket = w.ticket end
end
local over = {}
for i = 6, #ARGV do over[ARGV[i]] = true end
local vacant, behind = true, nil
for _, k in ipairs(keys) do
  if holder(k) then vacant = false end
  local first = head(k)
  if first and #ARGV > 5 then
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
if not wait then
  local hint = 0
  if vacant and behind ~= owner and reaches(behind, owner, true) then hint = 2 end
  return answer { 0, look = hint }
end
if not ticket then enqueue(id, owner, joined, ttl, hold, 1) end
return answer { 2, look = look { id = id, owner = owner, keys = keys } }
