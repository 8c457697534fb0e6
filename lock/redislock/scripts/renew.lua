-- ARGV: id, TTL or 0.
local id, ttl = ARGV[1], tonumber(ARGV[2])
local g = redis.call('HMGET', S .. ':g:' .. id, 'exp', 'keys', 'token', 'ttl', 'fin', 'owner')
if not g[1] or tonumber(g[1]) <= now then return { 3 } end
if ttl == 0 then ttl = tonumber(g[4]) end
redis.call('HSET', S .. ':g:' .. id, 'ttl', ttl)
local fin, us = tonumber(g[5]), ttl
if fin > 0 then us = math.min(us, fin - now) end
lease(id, split(g[2]), us)
return { 1, tonumber(g[3]), now + us, ttl, g[6], g[2], 0, 0, '', {} }
