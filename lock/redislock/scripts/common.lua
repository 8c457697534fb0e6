-- What all scripts share. All names begin with the namespace in braces, and so lie in the same slot, S for short:
--                a hash with the last ticket
--   :tokens      a stream without entries, whose last id is the last token: KEYS[1]
--   :h:<key>     a hash, which is there while somebody holds the key or is in line for it:
--                <id>     the grant that holds it: token, ttl, hold, at, fin, exp, owner and keys, a line each
--                /<id>    the same while somebody is in line
--                (empty)  there while somebody is in line: when the last lease ends, or ended
--                While nobody is in line, the lease ends when the hash expires.
--   :q:<key>     the line for the key: ids by ticket
--   :w:<id>      a request that waits: owner, keys, ttl, hold, ticket, since, alive, proc, and crowd: for how many requests
--                of its process it stands in line, with itself; cycle once it is a victim
--   :o:<owner>   the ids of the owner's waiting requests
--   :waiters     ids by ticket
--   :wake:<proc> the channel of a process
-- Times are in microseconds by this server's clock; of a grant, at is when it was granted (0: its token tells), fin when its
-- maximum hold is over (0: never), and exp the end of its lease (0: ttl after at, at most). Keys and owners have no control
-- characters, so that a line feed separates them.
--
-- Acquiring where nobody is in the way comes first, in acquire_free.lua, and is done before this is read. Releasing a key
-- that nobody is in line for needs no script: without its one field the hash is gone. Where somebody is in line, the field
-- has another name, so that it can't be removed without handing the key on.
local S = string.match(KEYS[1], '^(.*):tokens$')
local LINE = ''
local HANDOVER, ALIVE, KEEP = 1000000, 1200000, 60000 -- microseconds twice, and milliseconds

local function time()
  local clock = redis.call('TIME')
  return clock[1] * 1000000 + clock[2]
end

local now = time()

-- must is called first where what is held is kept, ended or handed on, which has to go on when the server's memory is full. Of a
-- script that has written nothing yet the server refuses what may need memory (maxmemory with noeviction), to the script's end;
-- this is a first write that needs none and changes nothing.
local function must() redis.call('DEL', S .. ':none') end

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

-- peek tells who holds a key: the grant, with the end of its lease and whether somebody is in line; nil: nobody does, and
-- whose lease has ended, if it was not noticed yet.
local function peek(k)
  local h = S .. ':h:' .. k
  local fields, id, text, exp = redis.call('HGETALL', h), nil, nil, nil
  for i = 1, #fields, 2 do
    if fields[i] == LINE then exp = tonumber(fields[i + 1]) else id, text = string.match(fields[i], '[^/]+'), fields[i + 1] end
  end
  if not id then return nil end
  local token, ttl, hold, at, fin, over, owner, joined =
    string.match(text, '^([%d-]+)\n(%d+)\n(%d+)\n(%d+)\n(%d+)\n(%d+)\n([^\n]*)\n(.*)$')
  ttl, at, over = tonumber(ttl), tonumber(at), tonumber(over)
  if at == 0 then at = string.match(token, '^%d+') * 1000 end
  -- Hashes last up to two milliseconds longer than leases, which must not add up where requests come into line and leave.
  if over == 0 then over = at + 1000 + ttl end
  local g = { id = id, token = token, ttl = ttl, hold = tonumber(hold), at = at, fin = tonumber(fin), owner = owner, joined = joined,
    text = text, lined = exp ~= nil, exp = exp or math.min(over, time() + redis.call('PTTL', h) * 1000) }
  if g.exp > now then return g end
  return nil, g
end

-- grant reads a grant by its id and one of its keys; nil: it has ended, or never was.
local function grant(id, key)
  local first
  local g = peek(key)
  for _, k in ipairs(g and g.id == id and split(g.joined) or {}) do
    if k ~= key then g = peek(k) end
    if not g or g.id ~= id then return nil end
    if not first or g.exp < first.exp then first = g end
  end
  return first
end

-- keep writes down who holds a key, if anybody does, and whether somebody is in line, and makes its hash last as long as the
-- lease, and longer where somebody is in line. The server expires hashes by whole milliseconds, which must not be too early.
local function keep(k, g)
  local h, exp = S .. ':h:' .. k, g and g.exp or 0
  local ms = math.ceil(math.max(exp - now, 0) / 1000) + 1
  if redis.call('EXISTS', S .. ':q:' .. k) == 1 then
    redis.call('HSET', h, LINE, int(exp))
    if g then
      redis.call('HSET', h, '/' .. g.id, g.text)
      redis.call('HDEL', h, g.id)
    end
    ms = ms + KEEP
  else
    if g then
      redis.call('HSET', h, g.id, g.text)
      redis.call('HDEL', h, '/' .. g.id)
    end
    redis.call('HDEL', h, LINE)
  end
  redis.call('PEXPIRE', h, ms)
end

-- lease writes a grant that ends in us microseconds, and returns what is answered to whom it was given.
local function lease(g, us)
  g.exp = now + us
  g.text = table.concat({ g.token, int(g.ttl), int(g.hold), int(g.at), int(g.fin), int(g.exp), g.owner, g.joined }, '\n')
  for _, k in ipairs(split(g.joined)) do keep(k, g) end
  return { 1, g.token, g.exp, g.ttl, g.owner, g.joined, 0, 0, '', {}, 0, 0 }
end

-- begin is when a grant is in the hands of whom it is for.
local function begin(g, us)
  g.at, g.fin = now, 0
  if g.hold > 0 then g.fin = now + g.hold end
  return lease(g, us)
end

-- take makes a full lease of a grant.
local function take(g) return begin(g, shorter(g.ttl, g.hold)) end

local work, done, woken, expired, proc = {}, 0, {}, 0, ''

-- give grants keys that are free, for us microseconds.
local function give(id, owner, joined, ttl, hold, us)
  return begin({ id = id, token = token(), ttl = ttl, hold = hold, owner = owner, joined = joined }, us)
end

-- drop ends a grant; what it held is settled later.
local function drop(id, joined)
  for _, k in ipairs(split(joined)) do
    redis.call('HDEL', S .. ':h:' .. k, id, '/' .. id)
    work[#work + 1] = k
  end
end

-- holder is peek that ends what has expired.
local function holder(k)
  local g, over = peek(k)
  if over then
    expired = expired + 1
    drop(over.id, over.joined)
  end
  return g
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

-- enqueue puts a request in line for all of its keys.
local function enqueue(id, owner, joined, ttl, hold, crowd)
  local ticket = redis.call('HINCRBY', S, 'ticket', 1)
  redis.call('HSET', S .. ':w:' .. id, 'owner', owner, 'keys', joined, 'ttl', ttl, 'hold', hold, 'ticket', ticket,
    'since', now, 'alive', now + ALIVE, 'proc', proc, 'crowd', crowd)
  redis.call('PEXPIRE', S .. ':w:' .. id, KEEP)
  for _, k in ipairs(split(joined)) do
    redis.call('ZADD', S .. ':q:' .. k, ticket, id)
    redis.call('PEXPIRE', S .. ':q:' .. k, KEEP)
    keep(k, (peek(k)))
  end
  redis.call('ZADD', S .. ':waiters', ticket, id)
  redis.call('PEXPIRE', S .. ':waiters', KEEP)
  redis.call('SADD', S .. ':o:' .. owner, id)
  redis.call('PEXPIRE', S .. ':o:' .. owner, KEEP)
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
    work[#work + 1] = k
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
        local g = peek(k)
        if g then next[1] = g.owner end
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
    local g = peek(k)
    if g and g.owner ~= owner and reaches(g.owner, owner, false) then return true end
  end
  return false
end

-- settle passes on the keys that have become free, each to the first in line if all that it wants is free and nobody is
-- before it. Keys that nobody is in line for any more are marked so.
local function settle()
  while work[done + 1] do
    done = done + 1
    local k = work[done]
    local w, g = head(k), holder(k)
    if not w and not g then
      redis.call('DEL', S .. ':h:' .. k)
    elseif not w and g.lined then
      keep(k, g)
    elseif w and not g then
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

-- crowds tells for how many requests those in line for a key stand: the fewest, and the most. Both are 0 where nobody is in line,
-- and where too many are to look at.
local function crowds(k)
  local ids, least, most = redis.call('ZRANGE', S .. ':q:' .. k, 0, 16), 0, 0
  if #ids > 16 then return 0, 0 end
  for i, id in ipairs(ids) do
    local n = tonumber(redis.call('HGET', S .. ':w:' .. id, 'crowd') or 1)
    if i == 1 or n < least then least = n end
    if n > most then most = n end
  end
  return least, most
end

-- answer is what all scripts that may grant return: status, token, end of lease, TTL, owner, keys, what to look at, how
-- many leases were found expired, the cycle, who was woken, and the crowds.
local function answer(a)
  settle()
  return { a[1], a[2] or 0, a[3] or 0, a[4] or 0, a[5] or '', a[6] or '', a.look or 0, expired, a.cycle or '', woken, a.least or 0, a.most or 0 }
end
-- Statuses: 0 refused, 1 granted, 2 in line, 3 gone, 4 a victim.
