-- ARGV: id, keys, process, whether to take what was granted at this very moment. Takes a request out of the line.
must()
proc = ARGV[3]
local id = ARGV[1]
local g = grant(id, split(ARGV[2])[1])
if g and ARGV[4] == '1' then return answer(take(g)) end
drop(id, ARGV[2])
local w, dead = waiting(id)
local was = w and { w.owner, w.joined } or dead
if was then
  redis.call('DEL', S .. ':w:' .. id)
  unqueue(id, was[1], was[2])
  if was[8] then return answer { 4, cycle = was[8] } end
end
return answer { 0 }
