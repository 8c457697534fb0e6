package pglock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// A report is written by one process at a time, and never by one that is late.
func Example() {
	report := func(ctx context.Context, pool *pgxpool.Pool) error {
		backend := pglock.New(pool, pglock.Options{})
		defer backend.Close()
		locker := lock.New(backend, lock.LockerOptions{})
		held, err := locker.Acquire(ctx, []string{"report/7"}, lock.Options{TTL: 15 * time.Second, Wait: time.Minute})
		if err != nil {
			return err
		}
		defer func() { _ = held.Release(ctx) }() // What was lost has been fenced.
		return pgx.BeginFunc(held.Context(), pool, func(tx pgx.Tx) error {
			if err := pglock.Fence(ctx, tx, "report/7", held.Token("report/7")); err != nil {
				return err // lock.ErrStaleToken: somebody newer has been here.
			}
			_, err := tx.Exec(ctx, `UPDATE reports SET written_at = now() WHERE id = 7`)
			return err
		})
	}
	_ = report
}

// One of all processes tidies up, for as long as it lives and wants to.
func Example_election() {
	tidy := func(ctx context.Context, pool *pgxpool.Pool) error {
		backend := pglock.New(pool, pglock.Options{})
		defer backend.Close()
		election, err := lock.NewElection(lock.New(backend, lock.LockerOptions{}), "tidying", lock.ElectionOptions{})
		if err != nil {
			return err
		}
		election.Run(ctx, func(ctx context.Context, term int64) {
			for ctx.Err() == nil {
				_ = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if err := pglock.Fence(ctx, tx, "tidying", term); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, `DELETE FROM sessions WHERE expires_at < now()`)
					return err
				})
				select {
				case <-time.After(time.Minute):
				case <-ctx.Done():
				}
			}
		})
		return nil
	}
	_ = tidy
}

// The number is the same in every program, so that another one can take the same lock.
func ExampleAdvisoryKey() {
	fmt.Println(pglock.AdvisoryKey("invoice/7"))
	// Output: -5781043316014161609
}
