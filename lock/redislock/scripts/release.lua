-- ARGV: id, key, process.
must()
proc = ARGV[3]
local g = grant(ARGV[1], ARGV[2])
if g then
  drop(g.id, g.joined)
  return answer { 0 }
end
holder(ARGV[2]) -- Its lease is over, perhaps, and nobody has noticed.
return answer { 3 }
