package claim_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/claim"
)

// A mailer on a table of its own. Any number of processes run work and sweep; each e-mail is sent by one of them.
func Example() {
	table := claim.Table{
		Name:      "emails",
		Ready:     "status = 'queued'",
		Due:       "send_at",
		OnClaim:   "status = 'sending'",
		OnFinish:  "status = 'sent'",
		OnFail:    "status = 'queued', send_at = clock_timestamp() + interval '1 minute'",
		OnRelease: "status = 'queued'",
	}
	emails := claim.Must[uuid.UUID](table)
	const staleAfter = 5 * time.Minute

	// Sends what is due, up to ten at a time.
	work := func(ctx context.Context, pool *pgxpool.Pool, send func(ctx context.Context, id uuid.UUID, version int64) error) error {
		claimed, err := emails.ClaimDue(ctx, pool, 10)
		if err != nil {
			return err
		}
		var group errgroup.Group
		for _, c := range claimed {
			group.Go(func() error {
				sending, stop := emails.Keep(ctx, pool, staleAfter, c)
				failure := send(sending, c.ID, c.Version)
				stop()
				end := emails.Finish
				if failure != nil {
					end = emails.Fail
				}
				err := end(ctx, pool, c, nil)
				if errors.Is(err, claim.ErrLost) {
					return nil // It took too long, and another worker has it: nothing was changed.
				}
				return err
			})
		}
		return group.Wait()
	}
	// Frees what died with its worker, until ctx ends.
	sweep := func(ctx context.Context, pool *pgxpool.Pool) {
		emails.KeepReleasing(ctx, pool, claim.Sweep{StaleAfter: staleAfter, Every: time.Minute})
	}
	_, _ = work, sweep

	// What your migration needs.
	fmt.Println(table.DDL())
	for _, index := range table.Indexes() {
		fmt.Println(index)
	}
	// Output:
	// ALTER TABLE "emails"
	// 	ADD COLUMN IF NOT EXISTS "execution_lock_id" uuid,
	// 	ADD COLUMN IF NOT EXISTS "execution_locked_at" timestamptz,
	// 	ADD COLUMN IF NOT EXISTS "execution_version" bigint NOT NULL DEFAULT 0,
	// 	ADD COLUMN IF NOT EXISTS "execution_finished_by" uuid
	// CREATE INDEX IF NOT EXISTS "emails_claimable" ON "emails" ((send_at), "id") WHERE "execution_lock_id" IS NULL AND (status = 'queued')
	// CREATE INDEX IF NOT EXISTS "emails_claimed" ON "emails" ("execution_locked_at") WHERE "execution_lock_id" IS NOT NULL
}
