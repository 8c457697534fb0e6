-- Keeps a state where it follows what is there. The state is one string; its head is at its beginning, so that a large one
-- need not be parsed.
-- KEYS: the state. ARGV: revision, the one before it, token, run, TTL in milliseconds, the state, and what of another program's
-- it replaces, or nothing.
-- Answers: ok; lost; corrupt; or fenced, with the revision and the token that are there.

-- Numbers are compared as text: a number in Lua has 53 bits.
local function less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then
  if ARGV[1] ~= '1' or ARGV[7] ~= '' then return {'lost'} end
else
  if kind ~= 'string' then return {'corrupt'} end
  local head = redis.call('GETRANGE', KEYS[1], 0, 511)
  local revision, token, run = string.match(head, '^{"version":1,"revision":(%d+),"token":(%d+),"run":"([^"]*)"')
  if not revision then
    if ARGV[7] == '' or redis.call('GET', KEYS[1]) ~= ARGV[7] then return {'corrupt'} end
  else
    if revision == ARGV[1] and run == ARGV[4] then return {'ok'} end
    if revision ~= ARGV[2] or less(ARGV[3], token) then return {'fenced', revision, token, run} end
  end
end
redis.call('SET', KEYS[1], ARGV[6], 'PX', ARGV[5])
return {'ok'}
