// Package etcdlock keeps the locks of package lock in etcd.
//
// # Protocol
//
// A grant is one transaction: under a lease of the lock's TTL it writes the grant, and for each key who holds it, if
// none of the keys is held and nobody has joined a line since the transaction's author looked. The transaction's
// revision is the token. A request that has to wait is a key, too, under a lease that its process renews four times a
// second; its place in line is the revision at which it was written. A release revokes the lock's lease.
//
// There is no server that decides, so each process decides for its own requests: whenever something is deleted, and
// every [PollInterval], it reads the whole picture at one revision, takes the locks that are free and whose turn has come,
// and looks for deadlocks. When several processes see one cycle, only the victim's own process refuses the victim, in a
// transaction that fails if any victim was chosen since the picture was taken. So no cycle has two victims.
//
//	asking ──► held ──► released | expired
//	  └──► in line ──► held | refused | withdrawn | expired with its process (then asked again, if that lives)
//
// # What it promises
//
// What package lock does, as long as a majority of etcd's members can be reached. A request fails when etcd does not answer it for 5 s. Where a
// connection breaks, or etcd has no leader, a request that may wait asks again within these 5 s, and keeps its place in line. Tokens are revisions,
// which grow from grant to grant of all keys and survive restarts. No clock of day takes part in any decision.
//
// # What it does not promise
//
//   - That locks end in time to the second: etcd's leases are whole seconds, at least one and a half election timeouts of
//     the server (two seconds by default), are looked at twice a second, and all begin anew when etcd elects a leader. A
//     holder that died is replaced within its lease, so rounded, + 2 s. Its own context ends by its TTL nevertheless,
//     and what is over by its TTL is neither renewed nor released as if it were not.
//   - A fence: etcd can't see another store's transaction. Bring the token to where you write, and compare it there; in
//     etcd itself, compare it in the transaction of the write.
//   - Many locks. Everything that is held or waits is read at each change while somebody waits: think of hundreds.
//   - That a maximum hold binds other processes than the one that was granted the lock.
//   - Tokens that go on growing after etcd was restored from a backup.
//
// As Jepsen has shown (etcd 3.4.3, 2020), that a lock is held in etcd does not exclude a second process that believes to
// hold it: a process may be stopped past the end of its lease. That is what the token is for.
package etcdlock
