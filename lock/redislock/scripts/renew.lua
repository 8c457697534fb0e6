-- ARGV: id, TTL or 0.
local id, ttl = ARGV[1], tonumber(ARGV[2])
local g = grant(id)
if not g or g.exp <= now then return { 3 } end
if ttl > 0 then g.ttl = ttl end
local us = g.ttl
if g.fin > 0 then us = math.min(us, g.fin - now) end
lease(id, g, us)
return { 1, g.token, g.exp, g.ttl, g.owner, g.joined, 0, 0, '', {} }
