-- ARGV: id, process, and a key whose line is to be looked at though the grant be forgotten, if there is one.
proc = ARGV[2]
work[1] = ARGV[3]
local g, joined = grant(ARGV[1])
if joined then drop(ARGV[1], joined) end
if g then return answer { 0 } end
if joined then expired = expired + 1 end
return answer { 3 }
