-- Forgets grants that were left to expire, and returns how many. A look at a few tells whether there are many of them.
local all = 0
for _, some in ipairs { 8, 128 } do
  local found, gone = redis.call('HRANDFIELD', S .. ':held', some, 'WITHVALUES'), {}
  for i = 1, #found, 2 do
    local id, keys = found[i], split(found[i + 1])
    if redis.call('HEXISTS', S .. ':h:' .. keys[1], id) == 0 then gone[#gone + 1] = id end
  end
  if #gone > 0 then redis.call('HDEL', S .. ':held', unpack(gone)) end
  all = all + #gone
  if #gone * 8 < #found then break end
end
return all
