-- ARGV: id, process.
proc = ARGV[2]
local lasts = tonumber(redis.call('HGET', S .. ':g:' .. id, 'exp')) > now
drop(id)
if lasts then return answer { 0 } end
expired = expired + 1
return answer { 3 }
