-- The usual release: of a lock on one key that lasts still, and that nobody waits for.
local id = ARGV[1]
do
  local S = KEYS[1]
  local g = redis.call('HGET', S .. ':held', id)
  if not g then return { 3 } end
  local exp, key = string.match(g, '^(%d+)\n%d+\n%d+\n%d+\n%d+\n%d+\n[^\n]*\n([^\n]*)$')
  if key and redis.call('EXISTS', S .. ':q:' .. key) == 0 then
    local clock = redis.call('TIME')
    if tonumber(exp) > clock[1] * 1000000 + clock[2] then
      redis.call('DEL', S .. ':h:' .. key)
      redis.call('HDEL', S .. ':held', id)
      return { 0 }
    end
  end
end
