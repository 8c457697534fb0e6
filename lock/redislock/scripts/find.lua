-- ARGV: key. Returns the lock that covers it, as graph.lua lists holders; nothing: none does.
local g = peek(ARGV[1])
if not g then return {} end
return { { g.id, g.owner, g.joined, g.token, int(g.at), int(g.exp) } }
