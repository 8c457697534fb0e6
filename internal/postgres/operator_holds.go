package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// ReleaseHold releases a hold for an operator, once per idempotency key, with its row in the audit log in the same
// transaction. What clients release goes by the ledger's lane, whose commits they share, and leaves no such row. Result and
// refusals are those of [ledger.Decide]; errors those of [ledger.Service.Execute].
func (d *Operator) ReleaseHold(ctx context.Context, c command.Command[ledger.Op]) (command.Answer, error) {
	release, ok := c.Op.(ledger.ReleaseHold)
	if !ok {
		panic("postgres: an operator releases holds, and does nothing else to them here")
	}
	return executeOn(ctx, d.db, c, func() (command.Answer, error) { return d.releaseHold(ctx, c, release) })
}

func (d *Operator) releaseHold(ctx context.Context, c command.Command[ledger.Op], release ledger.ReleaseHold) (answer command.Answer, err error) {
	batch := []command.Command[ledger.Op]{c}
	err = d.db.runOn(ctx, "operator release", []blockedRow{{holdRow, release.Hold.String()}}, func(ctx context.Context, tx pgx.Tx) error {
		holds := []uuid.UUID{release.Hold}
		owners, err := holdOwners(ctx, tx, holds)
		if err != nil {
			return err
		}
		if reason := d.db.blocked.find(accountRow, owners...); reason != nil {
			return reason
		}
		book, known, err := lockBook(ctx, tx, owners, holds, command.Keys(batch))
		if isLockTimeout(err) { // The hold has one owner.
			return d.db.blocked.add(accountRow, owners[0])
		}
		if err != nil {
			return err
		}
		var (
			b     pgx.Batch
			audit []command.Audit
		)
		keys := idempotency.NewBatch(known)
		answer = command.Decide(batch, keys, func(c command.Command[ledger.Op]) (any, error) {
			result, err := ledger.Decide(book, c.Op)
			if err == nil {
				audit = append(audit, command.Audited(c, "hold.release", release.Hold.String()))
			}
			return result, err
		})[0]
		saveBook(&b, book.Changes(), countedWrites)
		return sendDecided(ctx, tx, &b, audit, keys.Fresh(), book.Now())
	})
	return answer, err
}
