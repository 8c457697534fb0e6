-- ARGV: process, ids. Says that requests are alive, and takes over what has expired. Returns in how many microseconds the
-- next lease in their way ends (-1: none), how many were found expired, who was woken, whose rows are to be looked at, and
-- whether somebody may wait for himself.
must()
proc = ARGV[1]
local expiry, touch, circle, seen = -1, {}, 0, {}
local mine = {}
for i = 2, #ARGV do
  local id = ARGV[i]
  local w, dead = waiting(id)
  if not w and dead and not dead[8] and redis.call('ZSCORE', S .. ':waiters', id) then
    -- It was slow, and nobody has passed it over yet.
    redis.call('HSET', S .. ':w:' .. id, 'alive', now + ALIVE)
    w = waiting(id)
  end
  if w then
    mine[#mine + 1] = w
    redis.call('HSET', S .. ':w:' .. id, 'alive', now + ALIVE)
    redis.call('PEXPIRE', S .. ':w:' .. id, KEEP)
    redis.call('PEXPIRE', S .. ':o:' .. w.owner, KEEP)
  else
    touch[#touch + 1] = id
  end
end
if #mine > 0 then redis.call('PEXPIRE', S .. ':waiters', KEEP) end
-- Where all in line for a key have died, nobody else notices.
for _, id in ipairs(redis.call('ZRANGE', S .. ':waiters', 0, 7)) do
  if redis.call('EXISTS', S .. ':w:' .. id) == 0 then redis.call('ZREM', S .. ':waiters', id) end
end
for _, w in ipairs(mine) do
  for _, k in ipairs(w.keys) do
    if not seen[k] then
      seen[k] = true
      redis.call('PEXPIRE', S .. ':q:' .. k, KEEP)
      local g = holder(k)
      keep(k, g)
      if not g then
        work[#work + 1] = k
      elseif expiry < 0 or g.exp - now < expiry then
        expiry = g.exp - now
      end
    end
  end
end
settle()
for _, w in ipairs(mine) do
  local l = look(w)
  if l == 1 then circle = 1 end
  if l == 2 then touch[#touch + 1] = w.id end
end
settle()
return { expiry, expired, woken, touch, circle }
