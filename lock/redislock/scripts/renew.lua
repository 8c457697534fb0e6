-- ARGV: id, key, TTL or 0.
must()
local ttl = tonumber(ARGV[3])
local g = grant(ARGV[1], ARGV[2])
if not g then return { 3 } end
if ttl > 0 then g.ttl = ttl end
local us = g.ttl
if g.fin > 0 then us = math.min(us, g.fin - now) end
return lease(g, us)
