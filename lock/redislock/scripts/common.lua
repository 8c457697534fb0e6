-- What all scripts share. KEYS[1] names one namespace, and is a hash with the last ticket; every other name begins with
-- it, and so lies in the same slot:
--   :token       the last token
--   :h:<key>     the id of the grant that holds the key
--   :held        the grants by id: exp, token, ttl, hold, at, fin, owner and keys, a line each; times in microseconds by
--                this server's clock
--   :q:<key>     the line for the key: ids by ticket
--   :w:<id>      a request that waits: owner, keys, ttl, hold, ticket, since, alive, proc; cycle once it is a victim
--   :o:<owner>   the ids of the owner's waiting requests
--   :waiters     ids by ticket
--   :wake:<proc> the channel of a process
-- Keys and owners have no control characters, so that a line feed separates them.
--
-- Acquiring and releasing where nobody is in the way come first in acquire_free.lua and release_free.lua, and are done
-- before this is read.
local S = KEYS[1]
local HANDOVER, ALIVE, KEEP = 1000000, 1200000, 60000 -- microseconds twice, and milliseconds
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function split(s)
  if not string.find(s, '\n', 1, true) then return { s } end
  local out = {}
  for part in string.gmatch(s, '[^\n]+') do out[#out + 1] = part end
  return out
end

local function shorter(us, hold)
  if hold > 0 and hold < us then return hold end
  return us
end

-- int is for numbers that become part of a text, which must have all their digits.
local function int(n) return string.format('%.0f', n) end

-- grant reads a grant; nil: there is none.
local function grant(id)
  local v = redis.call('HGET', S .. ':held', id)
  if not v then return nil end
  local exp, token, ttl, hold, at, fin, owner, joined =
    string.match(v, '^(%d+)\n(%d+)\n(%d+)\n(%d+)\n(%d+)\n(%d+)\n([^\n]*)\n(.*)$')
  return { exp = tonumber(exp), token = tonumber(token), ttl = tonumber(ttl), hold = tonumber(hold), at = tonumber(at),
    fin = tonumber(fin), owner = owner, joined = joined }
end

-- put writes a grant, and keeps what tells who has its keys until a minute after its end.
local function put(id, g)
  redis.call('HSET', S .. ':held', id, table.concat(
    { int(g.exp), int(g.token), int(g.ttl), int(g.hold), int(g.at), int(g.fin), g.owner, g.joined }, '\n'))
  local ms = int(math.ceil((g.exp - now) / 1000) + KEEP)
  for _, k in ipairs(split(g.joined)) do redis.call('SET', S .. ':h:' .. k, id, 'PX', ms) end
end

-- lease makes a grant end in us microseconds.
local function lease(id, g, us)
  g.exp = now + us
  put(id, g)
end

-- give grants keys that are free. The token is the next one, or the time where that is greater: what was forgotten at a
-- restart or a failover was a smaller number.
local function give(id, owner, joined, ttl, hold, us)
  local token, fin = math.max((redis.call('GET', S .. ':token') or 0) + 1, now), 0
  redis.call('SET', S .. ':token', int(token))
  if hold > 0 then fin = now + hold end
  put(id, { exp = now + us, token = token, ttl = ttl, hold = hold, at = now, fin = fin, owner = owner, joined = joined })
  forget(S, token, now)
  return token
end

local work, done, woken, expired, proc = {}, 0, {}, 0, ''

-- drop ends a grant; what it held is settled later.
local function drop(id)
  local g = grant(id)
  if not g then return end
  for _, k in ipairs(split(g.joined)) do
    if redis.call('GET', S .. ':h:' .. k) == id then redis.call('DEL', S .. ':h:' .. k) end
    work[#work + 1] = k
  end
  redis.call('HDEL', S .. ':held', id)
end

-- peek tells who holds a key: id, owner and end of lease.
local function peek(k)
  local id = redis.call('GET', S .. ':h:' .. k)
  if not id then return nil end
  local g = grant(id)
  if g and g.exp > now then return id, g.owner, g.exp end
  return nil, id
end

-- holder is peek that ends what has expired.
local function holder(k)
  local id, owner, exp = peek(k)
  if id then return id, owner, exp end
  if owner then
    expired = expired + 1
    drop(owner)
    redis.call('DEL', S .. ':h:' .. k)
  end
  return nil
end

-- waiting reads a request that is in line and alive.
local function waiting(id)
  local w = redis.call('HMGET', S .. ':w:' .. id, 'owner', 'keys', 'ttl', 'hold', 'ticket', 'alive', 'proc', 'cycle', 'since')
  if not w[1] or w[8] or tonumber(w[6]) < now then return nil, w[1] and w end
  return { id = id, owner = w[1], joined = w[2], keys = split(w[2]), ttl = tonumber(w[3]), hold = tonumber(w[4]),
    ticket = tonumber(w[5]), proc = w[7], since = tonumber(w[9]) }
end

-- unqueue takes a request out of all lines; those behind it are settled later.
local function unqueue(id, owner, joined)
  for _, k in ipairs(split(joined)) do
    redis.call('ZREM', S .. ':q:' .. k, id)
    work[#work + 1] = k
  end
  redis.call('ZREM', S .. ':waiters', id)
  redis.call('SREM', S .. ':o:' .. owner, id)
end

-- head is the first in line for a key. The dead before it are taken out.
local function head(k)
  while true do
    local id = redis.call('ZRANGE', S .. ':q:' .. k, 0, 0)[1]
    if not id then return nil end
    local w, dead = waiting(id)
    if w then return w end
    redis.call('ZREM', S .. ':q:' .. k, id)
    redis.call('ZREM', S .. ':waiters', id)
    if dead then
      unqueue(id, dead[1], dead[2])
      if not dead[8] then redis.call('DEL', S .. ':w:' .. id) end
    end
  end
end

-- tell wakes a request. It is a hint: where publishing is refused, looking finds the grant.
local function tell(id, p)
  if p == proc then woken[#woken + 1] = id else redis.pcall('PUBLISH', S .. ':wake:' .. p, id) end
end

-- take makes a full lease of a grant that lasts still; nil: it does not, or never was.
local function take(id)
  local g = grant(id)
  if not g or g.exp <= now then return nil end
  g.at, g.fin = now, 0
  if g.hold > 0 then g.fin = now + g.hold end
  lease(id, g, shorter(g.ttl, g.hold))
  return { 1, g.token, g.exp, g.ttl, g.owner, g.joined }
end

-- reaches tells whether one owner waits for another, directly or through others, by what is held, and by the places in
-- line if lines says so. What is too long to be followed counts as reached: it is looked at more closely elsewhere.
local function reaches(from, to, lines)
  local seen, stack, steps = { [from] = true }, { from }, 0
  while #stack > 0 do
    local at = table.remove(stack)
    for _, id in ipairs(redis.call('SMEMBERS', S .. ':o:' .. at)) do
      local w = waiting(id)
      for _, k in ipairs(w and w.keys or {}) do
        steps = steps + 1
        if steps > 5000 then return true end
        local next = {}
        local held, owner = peek(k)
        if held then next[1] = owner end
        if lines then
          local before = redis.call('ZREVRANGEBYSCORE', S .. ':q:' .. k, '(' .. int(w.ticket), '-inf', 'LIMIT', 0, 1)[1]
          local b = before and waiting(before)
          if b then next[#next + 1] = b.owner end
        end
        for _, o in ipairs(next) do
          if o == to and o ~= at then return true end
          if not seen[o] then
            seen[o] = true
            stack[#stack + 1] = o
          end
        end
      end
    end
  end
  return false
end

-- circular tells whether a request waits for its own owner.
local function circular(owner, keys)
  for _, k in ipairs(keys) do
    local held, other = peek(k)
    if held and other ~= owner and reaches(other, owner, false) then return true end
  end
  return false
end

-- settle passes on the keys that have become free, each to the first in line if all that it wants is free and nobody is
-- before it.
local function settle()
  while work[done + 1] do
    done = done + 1
    local k = work[done]
    local w = head(k)
    if w and not holder(k) then
      local ready = true
      for _, o in ipairs(w.keys) do
        if o ~= k then
          local free, first = not holder(o), head(o)
          if not free or not first or first.id ~= w.id then
            ready = false
            break
          end
        end
      end
      -- Somebody may have come first while the dead were taken out.
      local first = head(k)
      if ready and first and first.id == w.id then
        unqueue(w.id, w.owner, w.joined)
        redis.call('DEL', S .. ':w:' .. w.id)
        give(w.id, w.owner, w.joined, w.ttl, w.hold, shorter(HANDOVER, w.hold))
        tell(w.id, w.proc)
      elseif not ready then
        -- The next one may have the right to overtake, which its process finds out.
        local next = redis.call('ZRANGE', S .. ':q:' .. k, 1, 1)[1]
        local n = next and waiting(next)
        if n and n.owner ~= w.owner and reaches(w.owner, n.owner, true) then tell(n.id, n.proc) end
      end
    end
  end
end

-- look tells what a request in line is to be looked at for: 1 its owner may wait for itself, 2 it may have the right to
-- overtake.
local function look(w)
  if circular(w.owner, w.keys) then return 1 end
  local behind
  for _, k in ipairs(w.keys) do
    if peek(k) then return 0 end
    local first = head(k)
    if first and first.id ~= w.id and first.owner ~= w.owner then behind = behind or first.owner end
  end
  if behind and reaches(behind, w.owner, true) then return 2 end
  return 0
end

-- answer is what all scripts that may grant return: status, token, end of lease, TTL, owner, keys, what to look at, how
-- many leases were found expired, the cycle, and who was woken.
local function answer(a)
  settle()
  return { a[1], a[2] or 0, a[3] or 0, a[4] or 0, a[5] or '', a[6] or '', a.look or 0, expired, a.cycle or '', woken }
end
-- Statuses: 0 refused, 1 granted, 2 in line, 3 gone, 4 a victim.
