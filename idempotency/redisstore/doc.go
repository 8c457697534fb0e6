// Package redisstore keeps idempotency keys in Redis.
//
// Each key is one hash, changed by one script at a time; the times are those of the server, and it expires what is past
// its retention. Since each script touches one key, a cluster serves as well as a single server.
//
// # What it rests on
//
// The promises last as long as Redis keeps what it has acknowledged. That needs
//
//   - appendonly yes and appendfsync always, or a restart may lose the last second's keys (or all of them);
//   - maxmemory-policy noeviction, or keys go when memory is short;
//   - no failover to a replica that lacks the last writes. Redis replicates after it has acknowledged.
//
// A key that is lost this way is executed again. Where that must not be, keep keys where the effect is: package pgstore.
// [Store.Check] tells what of this does not hold.
//
// It needs Redis 5 or later, whose scripts may ask for the time before they write.
package redisstore
