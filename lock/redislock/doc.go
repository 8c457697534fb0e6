// Package redislock keeps the locks of package lock in Redis, or in one slot of a Redis cluster. It is tried on Redis 7.0,
// and needs 6.0 or newer. The client is one of rueidis or of go-redis, see package redisclient.
//
// # Protocol
//
// What is decided is decided by a Lua script, which Redis runs as one step: one to acquire all keys or join their lines, one
// to renew, one to release and hand on. Grants, requests that wait and the line for each key are kept
// under names that begin with the namespace in braces, so that a cluster has all of them in one slot; the scripts' texts
// are in the folder scripts, the names in common.lua. The server's clock alone decides expiry; how far the process's is from
// it makes no difference. A server that has forgotten the scripts, as after a restart or SCRIPT FLUSH, is sent them again.
//
// The usual case is made short. A key has a hash, which is there while somebody holds the key or is in line for it, with a
// field for the one and a field for the other. One key whose hash is not there is granted at the top of a script, in
// acquire_free.lua, before anything else is set up. A key that nobody is in line for is released by HDEL of its holder's
// field: that takes nothing from another holder, and with its last field the hash is gone. While somebody is in line the
// holder's field has another name, so that this does nothing, and a script releases the key and hands it on. A grant's id
// has its first key at the end, by which it is found.
//
//	asking ──► granted
//	  └──► in line ──► handed over ──► granted | expired
//	          └──► victim | withdrawn | passed over, as its process is silent
//
// Whoever releases grants to those next in line, in the script of the release, and wakes them: through memory within the
// process, else by PUBLISH on the channel of the process that waits. Redis keeps nothing that is published, and may refuse
// to publish (ACL), so that a wake-up may get lost; therefore each process looks after its waiting requests every [PollInterval], and every
// [BlindPollInterval] while its subscription is down: it says that they are alive, hands on what has expired, finds what
// it was granted, and looks for cycles. A lock that was handed over is leased for [HandOver] until its waiter takes it,
// which begins its full TTL.
//
// Requests of one process for one key form a group while there are several, if each wants only this key and its owner nothing else.
// One of them stands in line for all. Whoever of them releases the lock passes it on to the next by one script, which checks the holder's
// lease and gives a new token. While others are in line this goes on for a turn: for those that waited when it began, 20 ms at
// most. Where all that are in line stand for four requests or more, a turn has up to three rounds of these. A request behind which nothing has moved for 100 ms, or that has waited for a second, comes into line itself.
//
// The requests in Redis tell who waits for whom. The scripts only notice that an owner may wait for itself, by following those
// whom it waits for. Then the process reads the whole graph, in one script, and package lock's [lock.Graph] chooses the
// victim. The script that marks the victim checks that it still waits for itself, so that a cycle which several processes
// find has one victim. In the same way a request may overtake others that wait for its owner.
//
// # Tokens
//
// A namespace has one stream, without entries, and a token is the id that Redis would give to the next: the server's time in
// milliseconds, and a number within that; or the last id and one more where the clock is not past that. As one number a
// token is about the time in microseconds, and below 2^53. All keys of one grant have the same token. As fewer than a
// million grants are made in a second, tokens are never ahead of the time for long. Therefore they go on growing
//
//   - when the server restarts without persistence and the last id is gone: the time is past all earlier tokens;
//   - when a replica takes over that had not heard of the newest grants, or a file was not flushed: likewise;
//   - when the server's clock is set back while the last id is remembered: ids go on from that. Until the clock has caught up,
//     the ExpiresAt of a grant is too late by as much, which only people read.
//
// Only both at once, a loss of memory and a clock that is behind the last token, make tokens that are too small:
// keep the clocks of the servers synchronised.
//
// # What it promises
//
// What package lock does, as long as Redis keeps its memory. An uncontended lock takes one round trip to acquire and one
// to release; one that somebody comes into line for takes a second one to release. Waiting holds no connection. Nothing
// but the last token and ticket remains of locks that were released, or left to expire. A lease that ended while nobody wanted
// the key is counted by its holder alone, not by [Observer].
//
// A request whose context ends while it is asked is heard out, which takes 3 s at most (with go-redis, its own timeout), and undone: a client has several
// connections, and what undoes it must not be executed before it.
//
// On a server whose memory is full (maxmemory with the policy noeviction) nothing new is granted and nobody new comes into line:
// Acquire returns the server's OOM error. Locks that are held are renewed, released and handed on as ever, and requests in line
// keep their places.
//
// # What it does not promise
//
//   - Leases that last no longer than their TTL when the server's clock is set back. Redis keeps the ends of leases as times of
//     day, and so a lock whose holder has died stays held for as much longer as the clock was ahead, unless somebody ends it
//     ([Backend.Release] with its id). When the clock jumps ahead, leases are over early, and their holders learn of it at their
//     next renewal.
//   - Exclusion over a loss of memory. A server that restarts empty, or a replica that lags when it takes over, grants
//     again what is held. The old holder learns of it at its next renewal, after a third of its TTL at most, and its token
//     is smaller than the new one's: a fence refuses it. Where that is not enough use PostgreSQL or etcd.
//   - A fence. What is written elsewhere is to be guarded there, in the transaction of the write; for PostgreSQL that is
//     pglock's Fence, which takes these tokens as well.
//   - Redlock over several servers: that would make it slower and would not be safe without a fence either.
//   - The order of asking between processes while a key changes hands all the time: it may be off by a turn of each process, by a second
//     at most. A snapshot then shows one waiting request for several of a process.
//   - The order of asking over a loss of memory: those that wait ask again, in any order. Nor for a request that was
//     silent for over 1.2 s, as when its process was stopped.
//   - More than one slot's throughput: a namespace is on one server of a cluster. Use several for locks that have nothing
//     to do with each other. Deadlocks across namespaces are not seen.
//   - An eviction policy that forgets keys (maxmemory-policy other than noeviction) is a loss of memory as above.
package redislock
