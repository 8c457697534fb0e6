// Package localpg runs a private PostgreSQL server for one data directory, so
// that Fairlead works on a machine where nobody set up a database.
//
// # Protocol
//
// [Start] takes the directory's lock, then brings PostgreSQL up in one of three ways:
//
//   - cold: there is no cluster yet. initdb builds one under a temporary name without syncing; everything is then synced in one
//     pass, renamed into place, and the rename is synced too. A crash at any point leaves either no cluster or a complete and
//     durable one, and nobody could have written to it before, so skipping initdb's own sync gives nothing away.
//   - warm: the cluster is there and nothing runs on it. PostgreSQL is started
//     as our own child and recovers from its log if it has to.
//   - adopted: an earlier server process was killed and its PostgreSQL lives on. It is recognised by postmaster.pid and by its
//     process (a PostgreSQL on this very directory, not merely a process of that number), asked for a connection, and taken
//     over as it is. One that is shutting down is waited for; one that doesn't answer is ended and replaced.
//
// A supervisor then watches the process, whether child or adopted, and starts PostgreSQL again whenever it dies: at once the
// first time, with a growing pause if it keeps dying. Backends that outlived their postmaster are ended first, because they
// hold the shared memory that the new one needs. [Instance.Stop] is a fast, clean shutdown.
//
// # States
//
//	starting -> ready -> (died -> restarting -> ready)* -> stopping -> stopped
//	                      died -> restarting -> gave up
//
// [Instance.Done] is closed in the last state of either line; [Instance.Err] tells them apart. While PostgreSQL is restarting,
// connections fail: callers reconnect, and the URL stays the same.
//
// # Why PostgreSQL outlives a killed parent
//
// The alternative is to let the kernel end the child with its parent. That exists on Linux only, is tied to the life of a
// thread rather than of the process, and turns each crash of the server into a database recovery as well. Adoption works
// everywhere, keeps the caches warm, lets commits that were under way finish, and makes the next start immediate; and since
// PostgreSQL may be killed together with the server in any case, the recovery path exists beside it. An orphan costs some idle
// memory until the next start. Tests choose the other way with [Options.DieWithParent].
//
// # Who it runs as
//
// PostgreSQL refuses to run as root. When we are root on Linux it is started in a user namespace that maps an unprivileged id
// onto root: it holds no privilege, and its files stay root's. Where namespaces are not allowed, and on other systems, it runs
// as the user postgres (or nobody), to whom the cluster's directory is given. A cluster that already belongs to another user is
// run as that user.
//
// # Promises
//
//   - What PostgreSQL acknowledged survives every crash: fsync, full_page_writes and synchronous_commit are on and can't be
//     turned off by the configuration file ([Options.NonDurable] exists for tests).
//   - It can be reached only through a unix socket in a directory with mode 0700; it never listens on a network address.
//   - One server a directory: the second [Start] gets [ErrInUse].
//   - A cluster is never deleted, and never touched by another major version: the error is a [VersionError].
//
// # What it doesn't promise
//
// It doesn't upgrade clusters, doesn't replicate or back up, and doesn't protect the cluster from other processes of the same
// user. It isn't available on Windows, where [Start] returns [ErrUnsupported].
//
// # Files
//
// Below [Options.Dir]: postgres/ (the cluster; tune it by postgres/postgresql.conf), postgres.log and postgres.log.old (at most
// about 16 MiB each), run/ (the socket, unless the path would be too long for one, when a private directory below the system's
// temporary one serves), localpg.json (where the socket is) and localpg.lock.
package localpg
