-- ARGV: key. Returns the lock that covers it, as graph.lua lists holders; nothing: none does.
local id = peek(ARGV[1])
if not id then return {} end
local g = redis.call('HMGET', S .. ':g:' .. id, 'owner', 'keys', 'token', 'at', 'exp')
return { { id, g[1], g[2], g[3], g[4], g[5] } }
