package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// errDenied is what all missing privileges have in common: the log tells of the first one, and then rarely.
var errDenied = errors.New("a privilege is missing")

// Errors of the kit that the stores name.
var (
	errStale         = pgkit.ErrStale
	errNotReplicated = pgkit.ErrNotReplicated
)

// run executes fn in one READ COMMITTED transaction and commits, as [pgkit.Runner.Run] says: fn may be called more than once,
// and must recognise its own earlier effect, which every caller does by its keys or by guards.
//
// A database that is away is waited for until [Options].UnavailableAfter; one that answers, and takes its time, is not
// hurried.
//
// A transaction that for [command.BlockedFor] gets no lock in time, not even by doing without the rows that are locked, fails by a
// [command.BlockedError] that is not worth waiting for: somebody has locked a table.
//
// Errors: that one; command.ErrUnavailable when the database could not be used, or the role lacks a privilege, and nothing was applied, and command.ErrNotApplied with it
// where the last run of fn had called noteUnrecorded before PostgreSQL refused a statement;
// command.ErrUnknownOutcome when a COMMIT's answer was lost and could not be had; else what fn or the database said.
func (db *DB) run(ctx context.Context, name string, fn func(context.Context, pgx.Tx) error) error {
	var (
		unrecorded = false   // and rolled back: the last run of fn
		locked     time.Time // since when no run has had its locks in time
		start      = time.Now()
	)
	gate := func(ctx context.Context) (func(), error) {
		leave, err := db.stuck.gate(ctx, name, start)
		if errors.Is(err, errNoTry) {
			db.stuck.meet(name, true)
			err = lockedOut(err, db.recorded)
		}
		return leave, err
	}
	outcome, err := db.runner.RunGated(ctx, name, gate, func(ctx context.Context, tx pgx.Tx) error {
		t := &lockingTx{Tx: tx.(*pgkit.Tx), accounts: db.spec.Accounts, chapters: db.chapters.Load()} //nolint:errcheck // The runner gives nothing else.
		t.Ended = t.unlock
		stuck, hopeless := db.stuck.knows(name)
		if stuck { // On its own: else what the first statements lock before they run is waited for longer.
			if _, err := t.Exec(ctx, waitBriefly); err != nil {
				return err
			}
		}
		begun := time.Now()
		err := fn(ctx, t)
		unrecorded = t.unrecorded && pgkit.Undone(err)
		switch {
		case !isLockTimeout(err):
			locked = time.Time{}
		case locked.IsZero():
			if locked = begun; time.Since(begun) > blockedAfter*2 { // It has waited for more than a row.
				db.stuck.meet(name, false)
			}
		default:
			db.blocked.meet()
			over := time.Since(locked) >= command.BlockedFor
			if db.stuck.meet(name, over); over || hopeless {
				return lockedOut(err, db.recorded)
			}
		}
		return err
	})
	blocked, isBlocked := errors.AsType[*command.BlockedError](err)
	switch outcome {
	case pgkit.Committed:
		return nil
	case pgkit.Unavailable:
		if pgkit.IsDenied(err) && db.denied.Is(errDenied) {
			db.logger.WarnContext(ctx, "the role of the database's URL lacks a privilege: fairlead doctor --database-url says which", "transaction", name, "error", err)
		}
		if err = command.Unavailable(err); unrecorded {
			err = command.NotApplied(err)
		}
	case pgkit.Unknown:
		if isBlocked { // Which says that nothing was applied. An earlier run may have been committed.
			err = errors.New(blocked.Error())
		}
		err = command.UnknownOutcome(err)
	case pgkit.Failed:
	}
	return fmt.Errorf("postgres: %s: %w", name, err)
}

// persistOn is runOn for work in the background that nobody waits for: an absent database is waited for as long as other
// transactions are, which is longer than a crash recovery of a private PostgreSQL takes.
func (db *DB) persistOn(ctx context.Context, name string, rows []blockedRow, fn func(context.Context, pgx.Tx) error) error {
	start := time.Now()
	var lost error // a COMMIT whose answer never came
	for {
		err := db.runOn(ctx, name, rows, fn)
		if errors.Is(err, command.ErrUnknownOutcome) {
			lost = err
		} else if !errors.Is(err, command.ErrUnavailable) {
			return err
		}
		if errors.Is(err, errNotReplicated) || time.Since(start) > pgkit.RetryFor || !wait.For(ctx, pgkit.MaxBackoff) {
			return cmp.Or(lost, err)
		}
	}
}

// readError marks failures of the connection, and missing privileges, as unavailability.
func readError(err error) error {
	if err != nil {
		if v, _ := pgkit.Classify(err); v == pgkit.Lost || v == pgkit.Denied {
			return command.Unavailable(err)
		}
	}
	return err
}

// lockingTx is a transaction that knows which accounts it locks. All transactions that [DB.run] runs are.
type lockingTx struct {
	*pgkit.Tx

	accounts *speculation.Accounts
	chapters bool         // of [DB.chapters]
	locked   []string     // accounts that the cache knows to be locked
	book     *ledger.Book // what is to be remembered of them; may be nil

	unrecorded bool // see noteUnrecorded
}

// noteUnrecorded is called once the records of a transaction's keys were read. If there are none, and PostgreSQL then refuses a
// statement, so that the transaction is rolled back, [DB.run] says that its commands were not applied. It is for transactions that are
// all there is of their commands: a request that has started a run in an earlier transaction has no record either.
func noteUnrecorded(tx pgx.Tx, known []idempotency.Record) {
	if t, ok := tx.(*lockingTx); ok {
		t.unrecorded = len(known) == 0
	}
}

// sendAndCommit sends the last statements of a transaction that [DB.run] runs, and COMMIT with them: see [pgkit.Tx.SendAndCommit].
func sendAndCommit(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	return tx.(*lockingTx).SendAndCommit(ctx, b) //nolint:errcheck // It is one.
}

// finish is sendAndCommit for statements with guards, one of which refuses by surprise. A binary that is built to be killed
// takes two round trips, so that it can be killed in between.
func finish(ctx context.Context, tx pgx.Tx, b *pgx.Batch, place string, surprise error) (err error) {
	if crashpoint.Enabled {
		err = pgkit.Send(ctx, tx, b)
		crashpoint.Hit(place)
	} else {
		err = sendAndCommit(ctx, tx, b)
	}
	if pgkit.Code(err) == pgkit.DivisionByZero {
		return fmt.Errorf("%w: %w", surprise, err)
	}
	return err
}

// lock notes in the cache that this transaction locks accounts, each of them once.
func (t *lockingTx) lock(ids []string) {
	t.accounts.Lock(ids)
	t.locked = append(t.locked, ids...)
}

// unlock ends what lock began. The transaction has ended.
func (t *lockingTx) unlock(committed bool) {
	if !committed {
		t.book = nil
	}
	t.accounts.Unlock(t.locked, t.book)
}
