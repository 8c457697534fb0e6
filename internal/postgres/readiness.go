package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

const (
	// readyFor is how long the outcome of a write is believed, and readyWithin how long the write and what follows it may take.
	readyFor    = time.Second
	readyWithin = 2 * time.Second
	// schemaWithin is how long a look waits for the table of the schema's steps, which somebody may have locked.
	schemaWithin = 500 * time.Millisecond

	undefinedTable       = "42P01"
	serializationFailure = "40001"
)

// The write of a look at readiness. A temporary table is empty after each commit, so that each insertion takes a new block from
// the disk; and a message in the write-ahead log, which nobody reads, makes COMMIT wait for the disk and the standbys as that of a
// command does. Neither locks or leaves a row.
const (
	makeScratch = `CREATE TEMPORARY TABLE IF NOT EXISTS fairlead_readiness (filling text) ON COMMIT DELETE ROWS`
	fillScratch = `INSERT INTO fairlead_readiness SELECT repeat('x', 4000)`
	markLog     = `SELECT pg_logical_emit_message(true, 'fairlead', 'readiness')`
	// selectSchema is the schema's version; a database without a schema has no such table.
	selectSchema = `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`
)

// noCatalogFile is what a new session ends with, in every language, when it finds no room for the file of the catalogs that PostgreSQL writes anew
// after a change of them (write_relcache_init_file).
const noCatalogFile = "could not write init file"

// readiness finds out whether commands are committed, on a connection of its own. It is safe for concurrent use.
type readiness struct {
	db     *DB
	config *pgx.ConnConfig
	newest int64 // step of the schema that this binary needs

	mu    sync.Mutex // held during a look, so that others wait for its outcome
	conn  *pgx.Conn  // nil where there is none
	asked time.Time  // when the last look ended
	last  error
	// noScratch says that the role must not make temporary tables. A full disk is then noticed by commands alone.
	noScratch bool
}

// Ready reports whether commands are committed: by a small write, at most once a second, which takes 2 s at most. Its error is an
// [operator.UnreadyError].
func (db *DB) Ready(ctx context.Context) error {
	r := &db.ready
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.asked) < readyFor {
		return r.last
	}
	// The look is for all who ask, so it does not end with one of them.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWithin)
	defer cancel()
	if r.last = r.look(ctx); r.last != nil {
		r.close()
	} else {
		r.db.presence.Heard() // Else commands that come now might still be told of an outage.
	}
	r.asked = time.Now()
	return r.last
}

// look writes on the kept connection. The database may have ended that since the last look, as it does when it was restarted, which
// says nothing of now: then another connection finds out.
func (r *readiness) look(ctx context.Context) error {
	kept := r.conn != nil
	err := r.write(ctx)
	if kept && unreadyFor(err, operator.UnreadyDatabase) && ctx.Err() == nil {
		r.close()
		err = r.write(ctx)
	}
	return err
}

func unreadyFor(err error, reason operator.Unreadiness) bool {
	why, ok := errors.AsType[*operator.UnreadyError](err)
	return ok && why.Reason == reason
}

func (r *readiness) write(ctx context.Context) (err error) {
	if r.conn == nil {
		if r.conn, err = pgx.ConnectConfig(ctx, r.config.Copy()); err != nil {
			return unready(operator.UnreadyDatabase, err)
		}
	}
	tx, err := r.conn.Begin(ctx)
	if err == nil && !r.noScratch {
		_, err = tx.Exec(ctx, makeScratch)
		if pgkit.IsDenied(err) {
			r.noScratch = true
			if err = tx.Rollback(ctx); err == nil {
				tx, err = r.conn.Begin(ctx)
			}
		}
	}
	if err == nil {
		var b pgx.Batch
		if !r.noScratch {
			b.Queue(fillScratch)
		}
		b.Queue(markLog)
		err = pgkit.Send(ctx, tx, &b)
	}
	if err != nil {
		return unready(operator.UnreadyDatabase, err)
	}
	switch err := tx.Commit(ctx); {
	case err != nil && ctx.Err() != nil:
		return unready(operator.UnreadyCommit, err)
	case err != nil:
		return unready(operator.UnreadyDatabase, err)
	}
	var version int64
	switch err := r.conn.QueryRow(ctx, selectSchema).Scan(&version); {
	case pgkit.IsDenied(err): // Another role migrates, and has not granted this one the look.
	case isLockTimeout(err): // No command needs the table, so whoever has locked it stops nothing.
	case err != nil:
		return unready(operator.UnreadyDatabase, err)
	case version < r.newest:
		return unready(operator.UnreadySchema, fmt.Errorf("the schema is at step %d, and this version needs step %d", version, r.newest))
	case version > r.newest:
		if err := checkSupport(r.newest, version, func() (oldest int64, err error) {
			return oldest, r.conn.QueryRow(ctx, selectSupport).Scan(&oldest)
		}); err != nil {
			return unready(operator.UnreadySchema, err)
		}
	}
	var lacks *PrivilegesError
	switch err := commandLacks(ctx, r.conn); {
	case errors.As(err, &lacks):
		return &operator.UnreadyError{Reason: operator.UnreadyReadOnly, Err: lacks}
	case err != nil && !pgkit.Refused(err): // An engine that refuses the question has other privileges.
		return unready(operator.UnreadyDatabase, err)
	}
	// A command needs a connection of the pool's as well.
	conn, err := r.db.pool.Acquire(ctx)
	if err != nil {
		return unready(operator.UnreadyPool, err)
	}
	conn.Release()
	return nil
}

// Unready names why the database can't be used, by the error of any statement.
func Unready(err error) operator.Unreadiness {
	why, _ := errors.AsType[*operator.UnreadyError](unready(operator.UnreadyDatabase, err))
	return why.Reason
}

// unready names why a look failed: by PostgreSQL's error, or else by where it failed.
func unready(where operator.Unreadiness, err error) error {
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	switch code := pgkit.Code(err); {
	case code == "25006": // read_only_sql_transaction: a standby, or a primary that was made read-only
		where = operator.UnreadyReadOnly
	case pgkit.IsDenied(err) && !connecting: // the role lacks a privilege
		where = operator.UnreadyReadOnly
	case code == "53100", code == "XX000" && strings.Contains(err.Error(), noCatalogFile): // disk_full
		where = operator.UnreadyDisk
	case code == undefinedTable: // the database has no schema
		where = operator.UnreadySchema
	case strings.HasPrefix(code, "53"): // too many connections, out of memory
		where = operator.UnreadyPool
	}
	return &operator.UnreadyError{Reason: where, Err: err}
}

// close ends the connection, without a goodbye that could take time. The caller holds the mutex.
func (r *readiness) close() {
	if r.conn != nil {
		_ = r.conn.PgConn().Conn().Close()
		r.conn = nil
	}
}
