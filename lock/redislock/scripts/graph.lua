-- Returns the requests that wait, and the owners of what they want.
local waiters, held, seen = {}, {}, {}
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
return { waiters, held }
