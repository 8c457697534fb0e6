-- The usual acquisition: of one key that nobody holds or wants, asked for the first time, for any time. It does what the
-- full script would.
if ARGV[8] == '0' and ARGV[5] == '0' and not string.find(ARGV[3], '\n', 1, true) then
  local S, id, key, ttl = KEYS[1], ARGV[1], ARGV[3], ARGV[4]
  local h = S .. ':h:' .. key
  if redis.call('EXISTS', h, S .. ':q:' .. key) == 0 then
    local clock = redis.call('TIME')
    local now = clock[1] * 1000000 + clock[2]
    local g, token, exp, ms = S .. ':g:' .. id, now, now + ttl, math.ceil(ttl / 1000) + 60000
    local last = redis.call('HGET', S, 'token')
    if last and last + 1 > now then token = last + 1 end
    redis.call('HSET', S, 'token', token)
    redis.call('HSET', g, 'owner', ARGV[2], 'keys', key, 'token', token, 'ttl', ttl, 'hold', '0', 'at', now, 'fin', '0', 'exp', exp)
    redis.call('PEXPIRE', g, ms)
    redis.call('SET', h, id, 'PX', ms)
    redis.call('ZADD', S .. ':grants', exp, id)
    if token % 16 == 0 then redis.call('ZREMRANGEBYSCORE', S .. ':grants', '-inf', now - 60000000) end
    return { 1, token, exp }
  end
end
