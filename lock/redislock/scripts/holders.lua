-- ARGV: cursor, pattern of the hashes' names. Returns where to go on ('0': nowhere) and some of those who hold.
local found, holders = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 1000), {}
for _, h in ipairs(found[2]) do
  local k = string.sub(h, #S + 4)
  local g = peek(k)
  if g and split(g.joined)[1] == k then holders[#holders + 1] = { g.id, g.owner, g.joined, g.token, int(g.at), int(g.exp) } end
end
return { found[1], holders }
