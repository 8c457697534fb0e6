-- The usual release: of a lock on one key that lasts still, and that nobody waits for. What is kept for a minute after the
-- end of the lease tells whether it lasts.
local id = ARGV[1]
do
  local S = KEYS[1]
  local g = S .. ':g:' .. id
  local key = redis.call('HGET', g, 'keys')
  if not key then return { 3 } end
  if not string.find(key, '\n', 1, true) and redis.call('PTTL', g) > 60000 and redis.call('EXISTS', S .. ':q:' .. key) == 0 then
    redis.call('DEL', S .. ':h:' .. key, g)
    redis.call('ZREM', S .. ':grants', id)
    return { 0 }
  end
end
