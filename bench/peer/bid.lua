-- One bid, decided and applied in one step. Redis runs nothing else meanwhile, so there is no lock.
--
-- KEYS: the auction's meta hash, the bidder's account hash, the auction's bids (account -> amount), its leaderboard, the
-- set of accounts and the set of bids that a later sync would have to write to a database.
-- ARGV: account, amount, the server's clock in milliseconds.
-- Returns {code, previous amount, available, frozen, round, round's end in milliseconds}.

local account, amount, now = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local meta = redis.call('HMGET', KEYS[1], 'status', 'ends_at', 'round', 'seller', 'min_bid', 'min_increment', 'started_at')
if not meta[1] then
  return {1, 0, 0, 0, 0, 0} -- no such auction
end
local ends_at = tonumber(meta[2])
if meta[1] ~= 'active' or now >= ends_at then
  return {2, 0, 0, 0, 0, 0} -- no round is open
end
if meta[4] == account then
  return {3, 0, 0, 0, 0, 0} -- the seller's own auction
end
local money = redis.call('HMGET', KEYS[2], 'available', 'frozen')
if not money[1] then
  return {4, 0, 0, 0, 0, 0} -- no such account
end
local previous = tonumber(redis.call('HGET', KEYS[3], account) or 0)
if amount < tonumber(meta[5]) or (previous > 0 and amount < previous + tonumber(meta[6])) then
  return {5, 0, 0, 0, 0, 0} -- too low
end
-- The existing bid's money comes back before the new amount is frozen.
local available = tonumber(money[1]) + previous - amount
local frozen = tonumber(money[2]) - previous + amount
if available < 0 then
  return {6, 0, 0, 0, 0, 0} -- not enough money
end
redis.call('HSET', KEYS[2], 'available', available, 'frozen', frozen)
redis.call('HSET', KEYS[3], account, amount)
-- The score is the amount with the age of the auction in seconds below it, so that the earlier of two equal bids is
-- ahead. It is exact below 2^53: amounts to 2^33 and twelve days.
local age = math.floor((now - tonumber(meta[7])) / 1000)
redis.call('ZADD', KEYS[4], amount * 1048576 + math.max(1048575 - age, 0), account)
redis.call('SADD', KEYS[5], account)
redis.call('SADD', KEYS[6], account)
return {0, previous, available, frozen, tonumber(meta[3]), ends_at}
