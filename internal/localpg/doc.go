// Package localpg runs a private PostgreSQL server for one data directory, so that Fairlead works on a machine without a
// database.
//
// # Protocol
//
// [Start] takes the directory's lock, then brings PostgreSQL up in one of three ways:
//
//   - cold: there is no cluster yet. initdb builds and syncs one under a temporary name, which is then renamed into place. A
//     crash at any point leaves either no cluster or a complete and durable one.
//   - warm: there is a cluster, and nothing runs on it. PostgreSQL starts as our child and recovers from its log if needed.
//   - adopted: an earlier server process was killed and its PostgreSQL still runs. We recognise it by postmaster.pid and by the
//     process itself (a PostgreSQL on this directory, not only a process of that number), connect, and take it over as it is. We
//     wait for one that is shutting down, and replace one that does not answer.
//
// A supervisor then watches the process, child or adopted, and restarts PostgreSQL when it dies: at once the first time, with a
// growing pause if it keeps dying. It first ends backends that outlived their postmaster, because they hold shared memory that
// the new one needs. [Instance.Stop] is a fast, clean shutdown; it kills a
// PostgreSQL that does not begin one within 5 s.
//
// # States
//
//	starting -> ready -> (died -> restarting -> ready)* -> stopping -> stopped
//	                      died -> restarting -> gave up
//
// [Instance.Done] is closed in the last state of either line; [Instance.Err] says which. While PostgreSQL restarts, connections
// fail. Callers reconnect; the URL stays the same.
//
// PostgreSQL outlives a killed parent on purpose: adoption keeps its caches warm, lets commits under way finish, and makes the
// next start immediate. Letting the kernel end the child with its parent works on Linux only, and turns each crash of the server
// into a database recovery. Tests choose that with [Options.DieWithParent].
//
// # The user that it runs as
//
// PostgreSQL refuses to run as root. When we are root on Linux, it runs in a user namespace that maps an unprivileged id onto
// root: it holds no privilege, and its files stay root's. Where namespaces are not allowed, and on other systems, it runs as the
// user postgres (or nobody), who is given the cluster's directory. A cluster of another user runs as that user.
//
// # Promises
//
//   - What PostgreSQL acknowledged survives every crash: fsync, full_page_writes and synchronous_commit are on, and the
//     configuration file can't turn them off ([Options.NonDurable] is for tests).
//   - PostgreSQL listens only on a unix socket in a directory with mode 0700, never on a network address.
//   - One server a directory: the second [Start] gets [ErrInUse].
//   - A cluster is never deleted, and never touched by another major version: the error names both.
//
// It does not upgrade, replicate or back up clusters, and does not protect them from other processes of the same user. On
// Windows, [Start] returns [ErrUnsupported].
//
// # Files
//
// Below [Options.Dir]: postgres/ (the cluster, tuned by postgres/postgresql.conf), postgres.log and postgres.log.old (at most
// about 16 MiB each), run/ (the socket; when that path is too long, a private temporary directory) and localpg.lock.
// Where the socket is, postgres/postmaster.pid says.
package localpg
