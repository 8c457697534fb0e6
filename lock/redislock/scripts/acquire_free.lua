-- The usual acquisition: of one key that nobody holds or wants, asked for the first time, for any time. It does what the
-- full script would, with fewer calls, which are what a script's time goes to.
if ARGV[8] == '0' and ARGV[5] == '0' and not string.find(ARGV[3], '\n', 1, true) then
  local S, id, key, ttl = KEYS[1], ARGV[1], ARGV[3], ARGV[4]
  local h = S .. ':h:' .. key
  if redis.call('EXISTS', h, S .. ':q:' .. key) == 0 then
    local clock = redis.call('TIME')
    local now = clock[1] * 1000000 + clock[2]
    local exp, at = string.format('%.0f', now + ttl), string.format('%.0f', now)
    local token, last = at, redis.call('SET', S .. ':token', at, 'GET')
    if last and tonumber(last) >= now then
      token = string.format('%.0f', last + 1)
      redis.call('SET', S .. ':token', token)
    end
    redis.call('HSET', S .. ':held', id, exp .. '\n' .. token .. '\n' .. ttl .. '\n0\n' .. at .. '\n0\n' .. ARGV[2] .. '\n' .. key)
    redis.call('SET', h, id, 'PX', string.format('%.0f', math.ceil(ttl / 1000) + 60000))
    forget(S, tonumber(token), now)
    return { 1, token, exp }
  end
end
