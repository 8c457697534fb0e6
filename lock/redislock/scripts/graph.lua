-- ARGV: how many holders to list. Returns the requests that wait, the owners of what they want, and the holders.
local waiters, held, holders, seen = {}, {}, {}, {}
for _, id in ipairs(redis.call('ZRANGE', S .. ':waiters', 0, -1)) do
  local w = waiting(id)
  if w then
    waiters[#waiters + 1] = { id, w.owner, w.joined, int(w.ticket), int(w.since) }
    for _, k in ipairs(w.keys) do
      if not seen[k] then
        seen[k] = true
        local g = peek(k)
        if g then
          held[#held + 1] = k
          held[#held + 1] = g.owner
        end
      end
    end
  end
end
local limit = tonumber(ARGV[1])
if limit > 0 then
  local ids = redis.call('HRANDFIELD', S .. ':held', limit)
  for _, id in ipairs(ids) do
    local g = grant(id)
    if g then holders[#holders + 1] = { id, g.owner, g.joined, g.token, int(g.at), int(g.exp) } end
  end
end
return { waiters, held, holders }
