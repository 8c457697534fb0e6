package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/claim"
)

// orders is the shop's own table, and what claiming does to its status.
var orders = claim.Table{ //nolint:gochecknoglobals // A constant of the program.
	Name:      "printshop.orders",
	Ready:     "status = 'queued'",
	Due:       "ordered_at",
	OnClaim:   "status = 'printing'",
	OnFinish:  "status = 'printed'",
	OnFail:    "status = 'queued'",
	OnRelease: "status = 'queued'",
}

// A printer that gives no sign of life for staleAfter is taken to be dead. Minutes are usual; this is for the impatient.
const (
	staleAfter = 500 * time.Millisecond
	sweepEvery = 100 * time.Millisecond
)

// printOrders has one printer jam with an order in its claws, and another one print everything.
func printOrders(ctx context.Context, pool *pgxpool.Pool) {
	claims := claim.Must[int64](orders)
	jammed, err := claims.ClaimDue(ctx, pool, 1)
	check(err)
	if len(jammed) != 1 {
		panic("there is nothing to print")
	}

	// Any number of processes may sweep; here it is one.
	sweeping, stop := context.WithCancel(ctx)
	var sweeper sync.WaitGroup
	sweeper.Go(func() {
		claims.KeepReleasing(sweeping, pool, claim.Sweep{StaleAfter: staleAfter, Every: sweepEvery})
	})
	for count(ctx, pool, `SELECT count(*) FROM printshop.orders WHERE status <> 'printed'`) > 0 {
		printDue(ctx, pool, claims, "printer-2")
		time.Sleep(sweepEvery)
	}
	stop()
	sweeper.Wait()

	// The first printer wakes up and wants to report its order as printed.
	if err := report(ctx, pool, claims, jammed[0], "printer-1"); !errors.Is(err, claim.ErrLost) {
		panic(fmt.Sprintf("the late report was taken: %v", err))
	}
	twice := count(ctx, pool, `SELECT count(*) FROM (SELECT order_id FROM printshop.prints GROUP BY order_id HAVING count(*) > 1) AS p`)
	fmt.Printf("printing: all orders done, %d reported twice, one late report refused\n", twice)
}

// printDue prints what can be claimed now.
func printDue(ctx context.Context, pool *pgxpool.Pool, claims *claim.Claims[int64], printer string) {
	claimed, err := claims.ClaimDue(ctx, pool, 10)
	check(err)
	for _, c := range claimed {
		// Heartbeats keep the claim while the work lasts, and the context ends before the claim can have gone stale.
		working, stop := claims.Keep(ctx, pool, staleAfter, c)
		err := printOut(working)
		stop()
		if err == nil {
			err = report(ctx, pool, claims, c, printer)
		} else {
			err = claims.Fail(ctx, pool, c, nil)
		}
		if !errors.Is(err, claim.ErrLost) { // Lost: somebody else has the order now.
			check(err)
		}
	}
}

// printOut stands for work that takes a moment and stops when it is told to.
func printOut(ctx context.Context) error {
	select {
	case <-time.After(20 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// report finishes the order and writes the print down in one transaction: a claim that is lost writes nothing.
func report(ctx context.Context, pool *pgxpool.Pool, claims *claim.Claims[int64], c claim.Claim[int64], printer string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO printshop.prints (order_id, attempt, printer) VALUES ($1, $2, $3)`, c.ID, c.Version, printer)
		if err != nil {
			return err
		}
		return claims.Finish(ctx, tx, c, nil)
	})
}

func count(ctx context.Context, pool *pgxpool.Pool, question string) (n int) {
	check(pool.QueryRow(ctx, question).Scan(&n))
	return n
}
