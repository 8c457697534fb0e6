-- ARGV: how many holders to list. Returns the requests that wait, the owners of what they want, and the holders.
local waiters, held, holders, seen = {}, {}, {}, {}
for _, id in ipairs(redis.call('ZRANGE', S .. ':waiters', 0, -1)) do
  local w = waiting(id)
  if w then
    waiters[#waiters + 1] = { id, w.owner, w.joined, int(w.ticket), int(w.since) }
    for _, k in ipairs(w.keys) do
      if not seen[k] then
        seen[k] = true
        local holds, owner = peek(k)
        if holds then
          held[#held + 1] = k
          held[#held + 1] = owner
        end
      end
    end
  end
end
local limit = tonumber(ARGV[1])
if limit > 0 then
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', S .. ':grants', '(' .. int(now), '+inf', 'LIMIT', 0, limit)) do
    local g = redis.call('HMGET', S .. ':g:' .. id, 'owner', 'keys', 'token', 'at', 'exp')
    if g[1] then holders[#holders + 1] = { id, g[1], g[2], g[3], g[4], g[5] } end
  end
end
return { waiters, held, holders }
