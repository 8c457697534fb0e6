-- ARGV: id, process.
proc = ARGV[2]
local lasts = grant(id).exp > now
drop(id)
if lasts then return answer { 0 } end
expired = expired + 1
return answer { 3 }
