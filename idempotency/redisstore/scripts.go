package redisstore

import "github.com/fairlead-dev/fairlead/internal/rediskit"

// Names of the hash's fields are short, because each key has them all: f fingerprint, e execution, n fence, p park, u end of
// the lease in µs, r retention in µs, s status, h header, b body.

// clock is what every script begins with.
const clock = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local function num(n) return string.format('%.0f', n) end
`

// guard ends a script whose execution is not the one under its key any more. What has begun must come to its end though the
// server's memory is full: of a script that has written nothing yet the server refuses what may need memory (maxmemory with
// noeviction), to the script's end. HDEL of a field that is never there is a first write that needs none and changes nothing.
const guard = clock + `
local k = redis.call('HMGET', KEYS[1], 'e', 'n', 's', 'u', 'r', 'p')
if k[1] ~= ARGV[1] or k[2] ~= ARGV[2] then return {'lost'} end
redis.call('HDEL', KEYS[1], '')
`

// expiry sets when Redis forgets the key; one whose outcome may be unknown stays.
const expiry = `
local function expire(park, lease, retention)
	if park == '1' then redis.call('PERSIST', KEYS[1])
	else redis.call('PEXPIRE', KEYS[1], num(math.ceil((lease + retention) / 1000))) end
end
`

const describe = `
local function describe()
	local k = redis.call('HMGET', KEYS[1], 'f', 'e', 'n', 'p', 's', 'h', 'b', 'u')
	if not k[1] then return {'absent'} end
	local left = tonumber(k[8]) - now
	local phase = 'in_flight'
	if k[5] then phase = 'answered' elseif k[4] == '1' and left <= 0 then phase = 'unknown' end
	return {phase, k[1], k[2], k[3], num(math.max(left, 0)), k[5] or '0', k[6] or '', k[7] or ''}
end
`

const begin = clock + expiry + describe + `
local k = redis.call('HMGET', KEYS[1], 'f', 'e', 'n', 'p', 's', 'u')
local fence = now
if k[1] then
	if k[1] ~= ARGV[1] then return {'reused'} end
	local own = k[2] == ARGV[2]
	if k[5] or not own and (k[4] == '1' or tonumber(k[6]) > now) then return describe() end
	if own then fence = tonumber(k[3]) else fence = math.max(now, tonumber(k[3]) + 1) end
end
redis.call('HSET', KEYS[1], 'f', ARGV[1], 'e', ARGV[2], 'n', num(fence), 'p', ARGV[3], 'u', num(now + ARGV[4]), 'r', ARGV[5])
expire(ARGV[3], ARGV[4], ARGV[5])
return {'started', num(fence)}`

const extend = guard + expiry + `
if k[3] or tonumber(k[4]) <= now then return {'lost'} end
redis.call('HSET', KEYS[1], 'u', num(now + ARGV[3]))
expire(k[6], ARGV[3], k[5])
return {'ok'}`

const complete = guard + expiry + `
if not k[3] then
	redis.call('HSET', KEYS[1], 's', ARGV[3], 'h', ARGV[4], 'b', ARGV[5])
	expire('0', 0, k[5])
	return {'ok'}
end
local a = redis.call('HMGET', KEYS[1], 's', 'h', 'b')
return {'kept', a[1], a[2], a[3]}`

const release = guard + `
if k[3] then return {'lost'} end
redis.call('DEL', KEYS[1])
return {'ok'}`

const look = clock + describe + `return describe()`

type scripts struct{ begin, look, extend, complete, release *rediskit.Script }

func newScripts() scripts {
	return scripts{
		begin: rediskit.NewScript(begin), look: rediskit.NewScript(look), extend: rediskit.NewScript(extend),
		complete: rediskit.NewScript(complete), release: rediskit.NewScript(release),
	}
}
