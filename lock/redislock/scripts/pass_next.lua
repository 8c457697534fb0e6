-- ARGV: the hash of a key, the id that holds it, the id that is to have it next and what follows the token in its grant, how long the
-- hash lives for that, flags (1 or 0 each) with the process, in one: whether it may have been asked before, and whether those in
-- line go first; and for how many requests the next one stands in line then. The usual case comes first, as in acquire_free.lua: the lock is held, and passed on in a few calls.
if string.sub(ARGV[6], 1, 1) == '0' then
  local h, text = ARGV[1], ARGV[4]
  local line = redis.call('HGET', h, '')
  if not line then
    if redis.call('HDEL', h, ARGV[2]) == 1 then
      local new = token()
      redis.call('HSET', h, ARGV[3], new .. text)
      redis.call('PEXPIRE', h, ARGV[5])
      return new
    end
  elseif string.sub(ARGV[6], 2, 2) == '0' then
    local clock = redis.call('TIME')
    local now = clock[1] * 1000000 + clock[2]
    if tonumber(line) > now and redis.call('HDEL', h, '/' .. ARGV[2]) == 1 then
      local new = token()
      redis.call('HSET', h, '/' .. ARGV[3], new .. text, '', string.format('%.0f', now + string.match(text, '^\n(%d+)')))
      redis.call('PEXPIRE', h, ARGV[5] + 60000) -- KEEP
      return new
    end
  end
end
