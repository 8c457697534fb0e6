package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// turnPatience bounds how long a transaction waits for its turn on a row. It then goes on without, so that turns do not add up
// where each takes long for another reason.
const turnPatience = time.Second

// runOn is [DB.run] for a transaction that needs rows which another session may have locked. Each of its waits for a lock ends
// after [blockedAfter]. It then returns a [command.BlockedError], as it does at once where one of the rows is known to be
// blocked: nothing was applied, and no connection is held. The transactions of this process take turns on a row, so that one of
// them finds it locked, and not as many as there are connections.
func (db *DB) runOn(ctx context.Context, name string, rows []blockedRow, fn func(context.Context, pgx.Tx) error) error {
	for _, row := range rows {
		done, reason := db.blocked.turn(ctx, row)
		if reason != nil {
			return reason
		}
		defer done()
	}
	err := db.run(ctx, name, func(ctx context.Context, tx pgx.Tx) error {
		tx.(*lockingTx).Open(waitBriefly) //nolint:errcheck // It is one.
		err := fn(ctx, tx)
		if isLockTimeout(err) {
			db.blocked.meet()
			return db.blocked.note(rows)
		}
		return err
	})
	if reason, blocked := errors.AsType[*command.BlockedError](err); blocked {
		return reason
	}
	return err
}

// note adds rows of which one was found locked. Those that are free after all are found to be so by the next look. It was
// another row than these where all are; the command then tries again after the look.
func (b *blockedRows) note(rows []blockedRow) (reason *command.BlockedError) {
	for _, row := range rows {
		if added := b.add(row.kind, row.id); reason == nil {
			reason = added
		}
	}
	if reason == nil {
		reason = &command.BlockedError{Row: "a row", Wait: func(ctx context.Context) error {
			wait.For(ctx, probeEvery)
			return ctx.Err()
		}, Recorded: b.db.recorded}
	}
	return reason
}

// turn waits until the transactions of this process that came before have worked on a row. It returns why the row can't be had where it
// is blocked.
func (b *blockedRows) turn(ctx context.Context, row blockedRow) (done func(), reason *command.BlockedError) {
	mine := make(chan struct{})
	b.mu.Lock()
	if free := b.rows[row]; free != nil {
		defer b.mu.Unlock()
		return nil, b.reason(row, free)
	}
	before := b.turns[row]
	b.turns[row] = mine
	b.mu.Unlock()
	end := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.turns[row] == mine {
			delete(b.turns, row)
		}
		close(mine)
	}
	if before == nil {
		return end, nil
	}
	patience := time.NewTimer(b.patience)
	defer patience.Stop()
	select {
	case <-before:
		if reason = b.find(row.kind, row.id); reason != nil {
			end()
			return nil, reason
		}
		return end, nil
	case <-patience.C:
	case <-ctx.Done(): // The transaction finds that out.
	}
	go func() { // Those behind it wait for those before it still.
		<-before
		end()
	}()
	return func() {}, nil
}

// known reads the records of the given keys outside of a transaction.
func (db *DB) known(ctx context.Context, keys []idempotency.ID) (*idempotency.Batch, error) {
	known, err := db.readKeys(ctx, keys)
	return idempotency.NewBatch(known), err
}

// executeOn executes a command by a function that runs a transaction of its own, by [DB.runOn]. It waits for blocked rows
// outside of it, as [command.Execute] does.
func executeOn[Op any](ctx context.Context, db *DB, c command.Command[Op], do func() (command.Answer, error),
) (command.Answer, error) {
	return command.ExecuteOn(ctx, c, db.known, do)
}

// runWaiting is runOn that waits for the row, as executeOn does, for a transaction that is no command with a key.
func (db *DB) runWaiting(ctx context.Context, name string, row blockedRow, fn func(context.Context, pgx.Tx) error) error {
	_, err := executeOn(ctx, db, command.Command[struct{}]{}, func() (command.Answer, error) {
		return command.Answer{}, db.runOn(ctx, name, []blockedRow{row}, fn)
	})
	return err
}
