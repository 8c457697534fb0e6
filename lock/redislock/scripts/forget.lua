-- forget forgets, now and then, grants that were left to expire more than a minute ago. A look at a few tells whether
-- there are many of them.
local function forget(S, token, now)
  if token % 16 > 0 then return end
  for _, some in ipairs { 4, 32 } do
    local found, gone = redis.call('HRANDFIELD', S .. ':held', some, 'WITHVALUES'), {}
    for i = 1, #found, 2 do
      if tonumber(string.match(found[i + 1], '^%d+')) < now - 60000000 then gone[#gone + 1] = found[i] end
    end
    if #gone == 0 then return end
    redis.call('HDEL', S .. ':held', unpack(gone))
  end
end
