package pgkit

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SQLSTATEs that the code names (PostgreSQL documentation, appendix A).
const (
	DivisionByZero     = "22012"
	UniqueViolation    = "23505"
	LockTimeout        = "55P03"
	QueryCanceled      = "57014" // by a timeout of the session, or by a cancel request
	TooManyConnections = "53300"
	CompletionUnknown  = "40003" // nobody knows whether the transaction was committed: distributed engines say so after a COMMIT
)

// ErrStale is returned by a closure that found rows changed in a way that only another transaction explains. Its transaction
// is rolled back and run again.
var ErrStale = errors.New("another process was faster")

// ErrNotReplicated is what a COMMIT becomes that is durable on the primary alone: a failover could still lose it.
var ErrNotReplicated = errors.New("committed here, but perhaps not on a standby")

// Verdict is what an error means for the transaction that met it.
type Verdict int

// The verdicts.
const (
	Final    Verdict = iota // running it again would meet the same error
	Conflict                // another transaction was in the way: run again
	Lost                    // the server went away, is not there yet, or has run out of something: run again
	Denied                  // the role lacks a privilege: running it again is of use only once somebody has granted that
)

// Classify says what an error means, and names it for metrics: by its SQLSTATE, "stale", "connection" or "other". It takes
// the SQLSTATEs in final for final, whatever they mean elsewhere.
func Classify(err error, final ...string) (Verdict, string) {
	if errors.Is(err, ErrStale) {
		return Conflict, "stale"
	}
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	if code := Code(err); code != "" {
		switch {
		case slices.Contains(final, code):
			return Final, code
		case connecting: // No session began, whatever the reason is: a database that takes no connections, or a password that is being renewed.
			return Lost, code
		case code == "40001", code == "40P01", // serialization failure, deadlock
			code == LockTimeout, code == QueryCanceled,
			code == UniqueViolation, // the rerun sees the other's row and decides by it
			code == "25P03":         // idle in transaction for too long: this process was stopped
			return Conflict, code
		case strings.HasPrefix(code, "57P"), // shutdown, crash of another backend, starting up
			strings.HasPrefix(code, "08"), // connection exception
			strings.HasPrefix(code, "53"), // a full disk, no memory, too many connections
			strings.HasPrefix(code, "58"), // errors of the operating system's, such as those of a disk
			code == CompletionUnknown,
			isParallel(err),  // a crash that a parallel worker met first
			code == readOnly: // a failover is under way
			return Lost, code
		case code == notPrivileged:
			return Denied, code
		}
		return Final, code
	}
	var netErr net.Error
	if connecting || errors.Is(err, ErrAway) || errors.As(err, &netErr) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, net.ErrClosed) || pgconn.Timeout(err) || strings.Contains(err.Error(), "conn closed") {
		return Lost, "connection"
	}
	return Final, "other"
}

// isParallel reports whether a statement has lost a process that it was shared with. The code is that of much else; the names are of functions
// of PostgreSQL 14 to 18.
func isParallel(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == notReady && strings.Contains(pgErr.Routine, "Parallel")
}

// IsDenied reports whether PostgreSQL has refused something because the role lacks a privilege.
func IsDenied(err error) bool { return Code(err) == notPrivileged }

// Undone reports whether err is the server's word that the transaction was rolled back and the session goes on. After a FATAL
// or a PANIC that is not certain, nor where the server says that it does not know.
func Undone(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.SeverityUnlocalized == "ERROR" && pgErr.Code != CompletionUnknown
}

// Code returns the SQLSTATE of PostgreSQL's error, "" where err is none.
func Code(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}

// ReplicationWarning is the key of a connection's custom data under which NoteReplication keeps a warning.
const ReplicationWarning = "fairlead.replication_warning"

// NoteReplication makes connections remember a warning that a commit may not be on a standby. [Runner] turns it into
// [ErrNotReplicated].
func NoteReplication(c *pgconn.Config) {
	c.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		if IsReplicationWarning(n.Routine) {
			conn.CustomData()[ReplicationWarning] = true
		}
	}
}

// EndReadOnly makes connections end with the first write that is refused as one of a read-only transaction. A session keeps the
// default_transaction_read_only of its database or role that it began with. So one that began while the database was read-only refuses
// every write, also long after that.
func EndReadOnly(c *pgconn.Config) {
	before := c.OnPgError
	c.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool { return err.Code != readOnly && before(conn, err) }
}

// DropReadOnly is [EndReadOnly] for the connections of a pool, of which such a one is not given to the next caller. The one that has it is told what
// became of the write.
func DropReadOnly(c *pgxpool.Config) {
	before := c.ConnConfig.OnPgError
	c.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code == readOnly {
			conn.CustomData()[readOnly] = true
		}
		return before(conn, err)
	}
	c.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) {
		return conn.PgConn().CustomData()[readOnly] == nil, nil
	}
}

// IsReplicationWarning reports whether a notice comes from the function in which PostgreSQL waits for its standbys. The
// notice names it whatever the language of the message. It warns there, and only there, when a commit is durable on this
// server alone.
func IsReplicationWarning(routine string) bool { return routine == "SyncRepWaitForLSN" }
