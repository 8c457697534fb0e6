package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// priceList is the lock's key, and the name of what the fence guards.
const priceList = "prices"

// changePrices lets two clerks change the prices under a lock. The first one dozes off for longer than his lease, as a
// process does that is suspended; the lock goes to the second; and the first, who believes that he holds it still, writes.
func changePrices(ctx context.Context, pool *pgxpool.Pool) {
	backend := pglock.New(pool, pglock.Options{Schema: schema})
	defer backend.Close()
	locker := lock.New(backend, lock.LockerOptions{})

	// Renewed by itself, a lock is held until it is released. This one is not, so that it is lost.
	dozing, err := locker.Acquire(ctx, []string{priceList}, lock.Options{Owner: "first clerk", TTL: 300 * time.Millisecond, NoRenewal: true})
	check(err)
	awake, err := locker.Acquire(ctx, []string{priceList}, lock.Options{Owner: "second clerk", Wait: 5 * time.Minute})
	check(err)
	// Work under a lock is done under its context, which ends before the lease can have expired.
	err = setPrice(awake.Context(), pool, awake.Token(priceList), 1_900) //nolint:contextcheck // The context of the lock is made of ctx.
	check(errors.Join(err, awake.Release(ctx)))
	// Who looks at no context is stopped by the fence.
	if err := setPrice(ctx, pool, dozing.Token(priceList), 900); !errors.Is(err, lock.ErrStaleToken) {
		panic(fmt.Sprintf("the late price was taken: %v", err))
	}
	if err := dozing.Release(ctx); !errors.Is(err, lock.ErrLost) {
		panic(fmt.Sprintf("the first clerk was not told of his loss: %v", err))
	}
	var cents int64
	check(pool.QueryRow(ctx, `SELECT cents FROM printshop.prices WHERE item = 'poster'`).Scan(&cents))
	fmt.Printf("prices: a poster costs %d.%02d, the late change was refused\n", cents/100, cents%100)
}

// setPrice writes a price unless somebody with a newer token has written before. Fence and write are one transaction.
func setPrice(ctx context.Context, pool *pgxpool.Pool, token, cents int64) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := pglock.Schema(schema).Fence(ctx, tx, priceList, token); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO printshop.prices (item, cents) VALUES ('poster', $1)
			ON CONFLICT (item) DO UPDATE SET cents = excluded.cents`, cents)
		return err
	})
}
