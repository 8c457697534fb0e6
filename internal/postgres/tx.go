package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/command"
)

// The retry loop's limits.
const (
	// retryFor bounds how long a transaction is run again that meets others, and how long the answer to its COMMIT is waited
	// for. How long a database that is away is waited for is an option.
	retryFor = 20 * time.Second
	// attemptTimeout bounds one run, up to COMMIT: a database that has stopped answering must not hold a lane for ever. The
	// refunds of the largest campaign take a few seconds.
	attemptTimeout = 60 * time.Second
	// maxSurprises bounds reruns for reasons that another process's progress should soon remove. More of them mean
	// that something is wrong, and the error is better told.
	maxSurprises = 50
	eagerReruns  = 2
	firstBackoff = 5 * time.Millisecond
	maxBackoff   = 500 * time.Millisecond
)

// errStale is returned by a closure that found its locked rows changed in a way that only another process explains:
// the transaction is rolled back and run again.
var errStale = errors.New("another process was faster")

// run executes fn in one READ COMMITTED transaction and commits. fn may be called more than once, each time with a new
// transaction and after everything the earlier calls did was undone, so it must start afresh each time.
//
// It is run again after a serialization failure, a deadlock, a lock timeout, [errStale], and any failure of the
// connection. When the connection fails while COMMIT is under way, nobody knows whether it committed; running fn again
// settles that only if fn recognises its own earlier effect, which every caller does by its keys or by guards.
//
// A database that is away is waited for until [Options].UnavailableAfter; one that answers, and takes its time, is not
// hurried.
//
// Errors: command.ErrUnavailable when the database could not be used and nothing was applied;
// command.ErrUnknownOutcome when a COMMIT's answer was lost and could not be had; else what fn or the database said.
func (db *DB) run(ctx context.Context, name string, fn func(context.Context, pgx.Tx) error) error {
	var (
		start     = time.Now()
		lost      time.Time // since when the database is missed; zero while it is there
		wait      = waits()
		unknown   = false // a COMMIT was sent and its answer lost
		surprises = 0
	)
	// What is under way is cut only when the database is away, whatever becomes of the caller.
	through, stop := db.presence.watch(context.WithoutCancel(ctx))
	defer stop()
	for attempt := 1; ; attempt++ {
		committing, missed, err := db.attempt(ctx, through, fn)
		if err == nil {
			db.presence.heard()
			db.observe(name, attempt, start, "committed")
			return nil
		}
		verdict, reason := classify(err)
		if through.Err() != nil {
			verdict = connectionLost // It was cut, however that looks from inside.
		}
		unknown = unknown || (committing && verdict == connectionLost)
		if verdict == surprised {
			surprises++
		}
		if verdict == final || surprises > maxSurprises || ctx.Err() != nil || through.Err() != nil {
			return db.giveUp(ctx, name, attempt, start, unknown, verdict, err)
		}
		pause := wait.NextBackOff()
		if verdict != connectionLost {
			lost = time.Time{}
			if time.Since(start) > retryFor {
				return db.giveUp(ctx, name, attempt, start, unknown, verdict, err)
			}
		} else {
			if lost.IsZero() {
				lost = missed
			}
			if time.Now().Add(pause).After(db.presence.missed(lost)) {
				return db.giveUp(ctx, name, attempt, start, unknown, verdict, err)
			}
		}
		if committing && verdict == connectionLost {
			reason = "commit_unknown"
		}
		db.retry(name, reason)
		db.logger.DebugContext(ctx, "transaction runs again", "transaction", name, "attempt", attempt, "reason", reason, "error", err)
		// What is only stale is no longer in the way: the rerun need not wait, unless it happens again and again.
		if errors.Is(err, errStale) && attempt <= eagerReruns {
			continue
		}
		if !sleep(ctx, pause) {
			return db.giveUp(ctx, name, attempt, start, unknown, verdict, ctx.Err())
		}
	}
}

// persist is run for work in the background that nobody waits for: an absent database is waited for as long as other
// transactions are, which is longer than a crash recovery of a private PostgreSQL takes.
func (db *DB) persist(ctx context.Context, name string, fn func(context.Context, pgx.Tx) error) error {
	start := time.Now()
	var lost error // a COMMIT whose answer never came
	for {
		err := db.run(ctx, name, fn)
		if errors.Is(err, command.ErrUnknownOutcome) {
			lost = err
		} else if !errors.Is(err, command.ErrUnavailable) {
			return err
		}
		if errors.Is(err, errNotReplicated) || time.Since(start) > retryFor || !sleep(ctx, maxBackoff) {
			return cmp.Or(lost, err)
		}
	}
}

// waits are the pauses between runs: each twice as long as the one before, up to a bound, but for half of it by chance.
func waits() backoff.ExponentialBackOff {
	return backoff.ExponentialBackOff{InitialInterval: firstBackoff, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: maxBackoff}
}

// attempt runs fn once. The first result says whether the error came from COMMIT, the second when the database was missed if
// the error says that it was. Once COMMIT is sent only the end of through counts.
func (db *DB) attempt(ctx, through context.Context, fn func(context.Context, pgx.Tx) error) (committing bool, missed time.Time, err error) {
	ctx, cancelCtx := context.WithCancel(ctx)
	defer cancelCtx()
	defer context.AfterFunc(through, cancelCtx)()
	conn, missed, err := db.acquire(ctx)
	if err != nil {
		return false, missed, err
	}
	// The pool destroys a connection that comes back within a transaction, or broken.
	defer conn.Release()
	committing, err = db.onConn(ctx, through, conn, fn)
	return committing, time.Now(), err
}

// acquire takes a connection from the pool. It tells since when that was waited for in vain.
func (db *DB) acquire(ctx context.Context) (*pgxpool.Conn, time.Time, error) {
	asked := time.Now()
	if db.presence.hopeless() {
		return nil, asked, errAway
	}
	ctx, cancel := context.WithDeadline(ctx, db.presence.until(asked))
	defer cancel()
	conn, err := db.pool.Acquire(ctx)
	return conn, asked, err
}

func (db *DB) onConn(ctx, through context.Context, conn *pgxpool.Conn, fn func(context.Context, pgx.Tx) error) (committing bool, err error) {
	tx := &lazyTx{conn: conn, through: through, accounts: db.accounts}
	defer func() { tx.unlock(err == nil) }()
	// Once COMMIT was sent this does nothing. It must not depend on ctx, or a cancelled caller would cost the pool a
	// connection.
	defer func() {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
		defer cancel()
		_ = tx.Rollback(undo) // A failure closes the connection, which rolls back too.
	}()
	custom := conn.Conn().PgConn().CustomData()
	delete(custom, replicationWarning)
	working, cancelWork := context.WithTimeout(ctx, attemptTimeout)
	defer cancelWork()
	if err := fn(working, tx); err != nil {
		return tx.committing && !pgconn.SafeToRetry(err), err // Where nothing was sent, nothing is unknown.
	}
	// The caller's ctx no longer counts: giving up in the middle of COMMIT would only make its outcome unknown.
	commit, cancel := context.WithTimeout(through, retryFor)
	defer cancel()
	if err := tx.Commit(commit); err != nil {
		return true, err
	}
	if custom[replicationWarning] == true {
		return true, errNotReplicated
	}
	return false, nil
}

// errNotReplicated is what a COMMIT becomes that is durable on the primary alone: a failover could still lose it.
var errNotReplicated = errors.New("committed here, but perhaps not on a standby")

func (db *DB) giveUp(ctx context.Context, name string, attempt int, start time.Time, unknown bool, v verdict, err error) error {
	if unknown || errors.Is(err, errNotReplicated) {
		db.observe(name, attempt, start, "unknown")
		return fmt.Errorf("postgres: %s: %w", name, command.UnknownOutcome(err))
	}
	db.observe(name, attempt, start, "failed")
	if v != final || ctx.Err() != nil {
		return fmt.Errorf("postgres: %s: %w", name, command.Unavailable(err))
	}
	return fmt.Errorf("postgres: %s: %w", name, err)
}

func (db *DB) observe(name string, attempts int, start time.Time, outcome string) {
	if db.observer != nil {
		db.observer.Transaction(name, attempts, time.Since(start), outcome)
	}
}

func (db *DB) fallback(name, reason string) {
	if db.observer != nil {
		db.observer.Fallback(name, reason)
	}
}

func (db *DB) retry(name, reason string) {
	if db.observer != nil {
		db.observer.Retry(name, reason)
	}
}

// verdict is what an error means for the transaction that met it.
type verdict int

const (
	final          verdict = iota // running it again would meet the same error
	surprised                     // another transaction was in the way; run again
	connectionLost                // the server went away, or is not there yet; run again
)

// classify tells what an error means, and names it for the metrics.
func classify(err error) (verdict, string) {
	if errors.Is(err, errStale) {
		return surprised, "stale"
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case pgErr.Code == "40001", pgErr.Code == "40P01", // serialization failure, deadlock
			pgErr.Code == "55P03", // lock timeout
			pgErr.Code == "57014", // statement timeout
			pgErr.Code == "23505", // unique violation: the rerun sees the other's row and decides by it
			pgErr.Code == "25P03": // idle in transaction for too long: this process was stopped
			return surprised, pgErr.Code
		case strings.HasPrefix(pgErr.Code, "57P"), // shutdown, crash of another backend, starting up
			strings.HasPrefix(pgErr.Code, "08"), // connection exception
			pgErr.Code == tooManyConnections,
			pgErr.Code == "25006": // read-only: a failover is under way
			return connectionLost, pgErr.Code
		}
		return final, pgErr.Code
	}
	var netErr net.Error
	if errors.Is(err, errAway) || errors.As(err, &netErr) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, net.ErrClosed) || pgconn.Timeout(err) || isConnectError(err) || strings.Contains(err.Error(), "conn closed") {
		return connectionLost, "connection"
	}
	return final, "other"
}

const tooManyConnections = "53300"

func isConnectError(err error) bool {
	_, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok
}

// readError marks failures of the connection as unavailability.
func readError(err error) error {
	if v, _ := classify(err); v == connectionLost {
		return command.Unavailable(err)
	}
	return err
}

// sleep waits for about d and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d + rand.N(time.Millisecond)) //nolint:gosec // Jitter needs no secrecy.
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
