-- ARGV: key. Returns the lock that covers it, as holders.lua lists it; nothing: none does.
local g = peek(ARGV[1])
if not g then return {} end
return { { g.id, g.owner, g.joined, g.token, int(g.at), int(g.exp) } }
