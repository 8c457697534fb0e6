-- ARGV: as in pass_next.lua.
must()
proc = string.sub(ARGV[6], 3)
local again, yields = string.sub(ARGV[6], 1, 1) == '1', string.sub(ARGV[6], 2, 2) == '1'
local ttl, hold, owner, key = string.match(ARGV[4], '^\n(%d+)\n(%d+)\n0\n0\n0\n([^\n]*)\n(.*)$')
if again then
  local mine = grant(ARGV[3], key)
  if mine then return answer(take(mine)) end
  if waiting(ARGV[3]) then return answer { 2 } end
end
local g = grant(ARGV[2], key)
if not g then
  holder(key) -- Its lease is over, perhaps, and nobody has noticed.
  return answer { 3 }
end
drop(g.id, g.joined)
if yields and g.lined then
  enqueue(ARGV[3], owner, key, ttl, hold, ARGV[7])
  return answer { 2 }
end
return answer(give(ARGV[3], owner, key, tonumber(ttl), tonumber(hold), tonumber(ttl)))
