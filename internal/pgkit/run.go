package pgkit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// The retry loop's limits.
const (
	// RetryFor bounds how long a transaction is run again, unless a [Runner] says otherwise.
	RetryFor = 20 * time.Second
	// CommitTimeout bounds the wait for the answer to COMMIT, unless a [Runner] says otherwise.
	CommitTimeout = 20 * time.Second
	// attemptTimeout bounds one run, up to COMMIT: a database that has stopped answering must not hold a lane for ever. The
	// refunds of the largest campaign take a few seconds.
	attemptTimeout = 60 * time.Second
	// cleanupTimeout bounds a rollback, and the end of a connection.
	cleanupTimeout = 5 * time.Second
	// maxConflicts bounds reruns for reasons that another process's progress should soon remove. More of them mean
	// that something is wrong, and the error is returned.
	maxConflicts = 50
	eagerReruns  = 2
	firstBackoff = 5 * time.Millisecond
	// MaxBackoff is the longest pause between two runs.
	MaxBackoff = 500 * time.Millisecond
	// A read that meets a connection which died in the pool is tried again; a database that is away is soon reported as such.
	readTries = 3
	readPause = 50 * time.Millisecond
)

// Outcome is how a transaction ended.
type Outcome int

// The outcomes.
const (
	Committed   Outcome = iota
	Failed              // with the closure's error, or the database's; nothing was applied
	Unavailable         // the database could not be used, it denied something to the role, or others were in the way for too long; nothing was applied
	Unknown             // the answer to a COMMIT was lost and could not be had
)

// Observer receives what transactions do, for metrics. Its methods must not block and may be called concurrently.
type Observer interface {
	// Transaction is called at the end of each; attempts counts its runs, outcome is "committed", "failed" or "unknown".
	Transaction(name string, attempts int, took time.Duration, outcome string)
	// Retry is called before each rerun; reason is Classify's, or "commit_unknown".
	Retry(name, reason string)
}

// Runner runs transactions on a pool. It is safe for concurrent use.
type Runner struct {
	Pool *pgxpool.Pool
	// Begin is the statement that begins a transaction; empty: "begin". It travels with the first statements: see [Tx].
	Begin string
	// Nested says that Begin is sent at once, and that closures get all of a driver's transaction, with nested ones.
	Nested bool
	// For is how long a transaction is run again, 0: [RetryFor]. With a Presence, that says how long an absent database is
	// waited for.
	For     time.Duration
	Attempt time.Duration // bounds one run, up to COMMIT; 0: a minute
	Commit  time.Duration // bounds the wait for the answer to COMMIT; 0: [CommitTimeout]
	Final   []string      // SQLSTATEs that end a transaction here, though a rerun might help: see [Classify]

	Presence *Presence    // may be nil
	Observer Observer     // may be nil
	Logger   *slog.Logger // may be nil
}

// Run executes fn in one READ COMMITTED transaction and commits. It may call fn more than once, each time with a new
// transaction and after everything the earlier calls did was undone, so fn must start afresh each time.
//
// Run calls fn again after a serialization failure, a deadlock, a timeout, a unique violation, [ErrStale], and any failure of
// the connection. When the connection fails while COMMIT is under way, nobody knows whether it committed; running fn again
// settles that only if fn recognises its own earlier effect, by its keys or by guards.
//
// Its error is fn's or the database's, and is nil for [Committed] alone.
func (r *Runner) Run(ctx context.Context, name string, fn func(context.Context, pgx.Tx) error) (Outcome, error) {
	return r.RunGated(ctx, name, func(context.Context) (func(), error) { return func() {}, nil }, fn)
}

// RunGated is [Runner.Run] of which each run goes through gate before it takes a connection, and calls the function that gate has returned when it has
// given that back. An error of gate counts as one of fn.
func (r *Runner) RunGated(ctx context.Context, name string, gate func(context.Context) (leave func(), err error), fn func(context.Context, pgx.Tx) error) (Outcome, error) {
	var (
		start     = time.Now()
		lost      time.Time // since when the database is missed; zero while it is there
		pauses    = waits()
		unknown   = false // a COMMIT was sent and its answer lost
		conflicts = 0
	)
	// Work under way is ended only when the database is away, whatever becomes of the caller.
	through, stop := r.Presence.Watch(context.WithoutCancel(ctx))
	defer stop()
	for attempt := 1; ; attempt++ {
		committing, missed, err := r.gated(ctx, through, gate, unknown, fn)
		if err == nil {
			r.Presence.Heard()
			r.observe(name, attempt, start, "committed")
			return Committed, nil
		}
		verdict, reason := Classify(err, r.Final...)
		if through.Err() != nil {
			verdict = Lost // The watch ended it, however that looks from inside.
		}
		giveUp := func(err error) (Outcome, error) {
			outcome, word := Failed, "failed"
			switch {
			case unknown || errors.Is(err, ErrNotReplicated):
				outcome, word = Unknown, "unknown"
			case verdict != Final || ctx.Err() != nil:
				outcome = Unavailable
			}
			r.observe(name, attempt, start, word)
			return outcome, err
		}
		committing = committing && verdict == Lost && !Undone(err)
		unknown = unknown || committing
		if verdict == Conflict {
			conflicts++
		}
		if verdict == Final || verdict == Denied || conflicts > maxConflicts || ctx.Err() != nil || through.Err() != nil {
			return giveUp(err)
		}
		pause, deadline := wait.Jitter(pauses.NextBackOff()), start.Add(cmp.Or(r.For, RetryFor))
		switch {
		case verdict != Lost:
			lost = time.Time{}
		case r.Presence != nil:
			if lost.IsZero() {
				lost = missed
			}
			deadline = r.Presence.Missed(lost)
		}
		if time.Now().Add(pause).After(deadline) {
			return giveUp(err)
		}
		if committing {
			reason = "commit_unknown"
		}
		if r.Observer != nil {
			r.Observer.Retry(name, reason)
		}
		if r.Logger != nil {
			r.Logger.DebugContext(ctx, "transaction runs again", "transaction", name, "attempt", attempt, "reason", reason, "error", err)
		}
		// The transaction that made this one stale is no longer in the way: the rerun need not wait, unless it happens again and
		// again.
		if errors.Is(err, ErrStale) && attempt <= eagerReruns {
			continue
		}
		if !wait.For(ctx, pause) {
			return giveUp(ctx.Err())
		}
	}
}

// gated is an attempt that goes through a gate.
func (r *Runner) gated(ctx, through context.Context, gate func(context.Context) (func(), error), unsure bool, fn func(context.Context, pgx.Tx) error,
) (committing bool, missed time.Time, err error) {
	leave, err := gate(ctx)
	if err != nil {
		return false, time.Now(), err
	}
	defer leave()
	return r.attempt(ctx, through, "commit", unsure, fn)
}

// Once is Run that calls fn once.
func (r *Runner) Once(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
	_, _, err := r.attempt(ctx, context.WithoutCancel(ctx), "commit", false, fn)
	return err
}

// Prepare is Once that leaves the transaction prepared under gid, which can stand between quotes. sent says that the error is
// not fn's: the transaction may be prepared all the same.
func (r *Runner) Prepare(ctx context.Context, gid string, fn func(context.Context, pgx.Tx) error) (sent bool, err error) {
	sent, _, err = r.attempt(ctx, context.WithoutCancel(ctx), "prepare transaction '"+gid+"'", false, fn)
	return sent, err
}

// waits are the pauses between runs: each twice as long as the one before, up to a bound. [wait.Jitter] is added to each.
func waits() backoff.ExponentialBackOff {
	return backoff.ExponentialBackOff{InitialInterval: firstBackoff, Multiplier: 2, MaxInterval: MaxBackoff}
}

// attempt runs fn once on a connection of the pool, and ends its transaction by a statement. committing says that the error may
// come from COMMIT, missed since when the database is missed if the error says that it is. Once COMMIT is sent only the end of
// through counts.
func (r *Runner) attempt(ctx, through context.Context, end string, unsure bool, fn func(context.Context, pgx.Tx) error) (committing bool, missed time.Time, err error) {
	ctx, cancelCtx := context.WithCancel(ctx)
	defer cancelCtx()
	defer context.AfterFunc(through, cancelCtx)()
	asked := time.Now()
	if r.Presence.Hopeless() {
		return false, asked, ErrAway
	}
	acquiring, stop := context.WithDeadline(ctx, r.Presence.until(asked, cmp.Or(r.Attempt, attemptTimeout)))
	conn, err := r.Pool.Acquire(acquiring)
	stop()
	if err != nil {
		return false, asked, err
	}
	// The pool destroys a connection that comes back within a transaction, or broken.
	defer conn.Release()
	tx := &Tx{Unsure: unsure, conn: conn, through: through, opening: []string{cmp.Or(r.Begin, "begin")}, patience: cmp.Or(r.Commit, CommitTimeout)}
	defer func() {
		// Once COMMIT was sent the rollback does nothing. It must not depend on ctx, or a cancelled caller would cost the pool a
		// connection.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		tx.rollback(undo)
		if tx.Ended != nil {
			tx.Ended(err == nil)
		}
		missed = time.Now()
	}()
	custom := conn.Conn().PgConn().CustomData()
	delete(custom, ReplicationWarning)
	working, cancelWork := context.WithTimeout(ctx, cmp.Or(r.Attempt, attemptTimeout))
	defer cancelWork()
	if r.Nested {
		tx.begun = true
		if tx.Tx, err = conn.BeginTx(working, pgx.TxOptions{BeginQuery: tx.opening[0]}); err != nil {
			return false, missed, err
		}
	}
	if err := fn(working, tx); err != nil {
		return tx.committing && !pgconn.SafeToRetry(err), missed, err // Where nothing was sent, nothing is unknown.
	}
	// The caller's ctx no longer counts: giving up in the middle of COMMIT would only make its outcome unknown.
	commit, cancel := context.WithTimeout(through, tx.patience)
	defer cancel()
	if err := tx.commit(commit, end); err != nil {
		return true, missed, err
	}
	if custom[ReplicationWarning] == true {
		return true, missed, ErrNotReplicated
	}
	return false, missed, nil
}

func (r *Runner) observe(name string, attempts int, start time.Time, outcome string) {
	if r.Observer != nil {
		r.Observer.Transaction(name, attempts, time.Since(start), outcome)
	}
}

// Read runs a read, again if the connection fails. [Unavailable] is how it ends where that does not help, where the role lacks a privilege,
// where something blocked it for too long, and where it took too long: nothing is wrong with it then. presence may be nil; with it, a read
// that takes its time is ended when the database is away, and none before the database may have been silent for so long.
func Read(ctx context.Context, presence *Presence, timeout time.Duration, read func(context.Context) error) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, presence.atLeast(timeout))
	defer cancel()
	ctx, stop := presence.Watch(ctx)
	defer stop()
	for try := 1; ; try++ {
		err := read(ctx)
		if err == nil {
			return Committed, nil
		}
		if errors.Is(context.Cause(ctx), ErrAway) {
			return Unavailable, ErrAway
		}
		switch v, _ := Classify(err); {
		case v == Final:
			return Failed, err
		case v == Conflict || v == Denied || try == readTries || !wait.For(ctx, readPause):
			return Unavailable, err
		}
	}
}
