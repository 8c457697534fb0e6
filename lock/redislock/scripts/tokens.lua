-- token is the next token: the id that the server gives to an entry of a stream, milliseconds and a number below 1000. Ids
-- grow even where the clock falls back, and go on from the clock where the stream was forgotten. The stream keeps nothing
-- but its last id.
local function token()
  local stream = KEYS[1]
  local id = redis.call('XADD', stream, 'MAXLEN', '0', '*', '', '')
  if #id < 18 then return id end
  -- The clock has been behind for a thousand grants.
  return redis.call('XADD', stream, 'MAXLEN', '0', string.format('%.0f-0', string.match(id, '^%d+') + 1), '', '')
end
