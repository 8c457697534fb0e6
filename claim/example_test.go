package claim_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/claim"
)

// A worker's loop body: claim what is due, do the work, finish. The finish counts only if the claim is still the worker's.
func Example() {
	emails := claim.Must[uuid.UUID](claim.Table{
		Name:     "emails",
		Ready:    "status = 'queued'",
		Due:      "send_at",
		OnClaim:  "status = 'sending'",
		OnFinish: "status = 'sent'",
		OnFail:   "status = 'queued', send_at = clock_timestamp() + interval '1 minute'",
	}, claim.Options{})

	work := func(ctx context.Context, conn *pgx.Conn, send func(id uuid.UUID, version int64) error) error {
		claimed, err := emails.ClaimDue(ctx, conn, 10)
		if err != nil {
			return err
		}
		for _, c := range claimed {
			end := emails.Finish
			if err := send(c.ID, c.Version); err != nil {
				end = emails.Fail
			}
			err := end(ctx, conn, c, nil)
			if errors.Is(err, claim.ErrLost) {
				continue // It took too long, and another worker has it: nothing was changed.
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	_ = work

	fmt.Println(claim.Table{Name: "emails"}.DDL())
	// Output:
	// ALTER TABLE "emails"
	// 	ADD COLUMN IF NOT EXISTS "execution_lock_id" uuid,
	// 	ADD COLUMN IF NOT EXISTS "execution_locked_at" timestamptz,
	// 	ADD COLUMN IF NOT EXISTS "execution_version" bigint NOT NULL DEFAULT 0
}
