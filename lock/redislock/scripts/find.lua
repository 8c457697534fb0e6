-- ARGV: key. Returns the lock that covers it, as holders.lua lists it; an empty list: none does.
local g = peek(ARGV[1])
return { g and { { g.id, g.owner, g.joined, g.token, int(g.at), int(g.exp) } } or {} }
