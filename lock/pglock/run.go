package pglock

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// Limits of the backend's own runs of transactions.
const (
	runFor        = 15 * time.Second // how long a transaction is run again
	runTimeout    = 10 * time.Second // of one run
	commitTimeout = 5 * time.Second
)

// ownRun is the [Run] of those who bring none. A transaction whose COMMIT was not answered is run again: it recognises what it
// did by the request's id.
func ownRun(pool *pgxpool.Pool) Run {
	r := &pgkit.Runner{
		Pool: pool, Begin: "begin isolation level read committed", For: runFor, Attempt: runTimeout, Commit: commitTimeout,
		Final: []string{pgkit.QueryCanceled},
	}
	return func(ctx context.Context, name string, fn func(context.Context, pgx.Tx) error) error {
		_, err := r.Run(ctx, name, fn)
		return err
	}
}

// last sends the last statements of a transaction, and with them its COMMIT where it is ours to send. None of them may
// need a look at what it did before that is committed; one that finds its row gone fails all of them, which is errMoved.
func last(ctx context.Context, tx pgx.Tx, b *pgx.Batch) (err error) {
	if ours, ok := tx.(*pgkit.Tx); ok {
		err = ours.SendAndCommit(ctx, b)
	} else {
		err = tx.SendBatch(ctx, b).Close()
	}
	if pgkit.Code(err) == pgkit.DivisionByZero { // How a statement says that a row was not there.
		return errMoved
	}
	return err
}
