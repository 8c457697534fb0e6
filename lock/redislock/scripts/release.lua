-- ARGV: id, process.
proc = ARGV[2]
local exp = redis.call('HGET', S .. ':g:' .. ARGV[1], 'exp')
if not exp then return answer { 3 } end
drop(ARGV[1])
if tonumber(exp) > now then return answer { 0 } end
expired = expired + 1
return answer { 3 }
