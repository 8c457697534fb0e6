-- ARGV: process, id, cycle. Makes a request the victim of a deadlock, unless somebody has given way meanwhile.
must()
proc = ARGV[1]
local w = waiting(ARGV[2])
if not w or not circular(w.owner, w.keys) then return answer { 0 } end
unqueue(w.id, w.owner, w.joined)
redis.call('HSET', S .. ':w:' .. w.id, 'cycle', ARGV[3])
tell(w.id, w.proc)
return answer { 4 }
