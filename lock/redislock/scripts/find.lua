-- ARGV: key. Returns the lock that covers it, as graph.lua lists holders; nothing: none does.
local id = peek(ARGV[1])
if not id then return {} end
local g = grant(id)
return { { id, g.owner, g.joined, int(g.token), int(g.at), int(g.exp) } }
