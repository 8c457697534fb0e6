-- ARGV: id, key, process. Takes the lock if the request was granted, and tells what became of it else.
must()
proc = ARGV[3]
local id = ARGV[1]
local mine = grant(id, ARGV[2])
if mine then
  local a = take(mine)
  a.least, a.most = crowds(ARGV[2])
  return answer(a)
end
local w, dead = waiting(id)
if w then return answer { 2, look = look(w) } end
if dead then
  redis.call('DEL', S .. ':w:' .. id)
  if dead[8] then return answer { 4, cycle = dead[8] } end
  unqueue(id, dead[1], dead[2])
end
return answer { 3 }
