// Printshop uses Fairlead as a library, with no Fairlead server: locks, claims and idempotency keys in the tables of a
// program that has a PostgreSQL of its own.
//
// The shop takes orders over HTTP, prints them, and now and then changes its prices. Each of the three has its way of
// going wrong, which the program brings about and survives:
//
//   - A customer's phone sends an order again, because the answer was lost. Package idempotency answers the repeats
//     from the first (orders.go).
//   - A printer jams in the middle of an order. Its claim goes stale, another printer takes the order, and the first
//     can't report it done when it wakes up. Package claim (printer.go).
//   - Two clerks change the prices, and the one whose lock has expired meanwhile has not noticed. His write is refused
//     in its own transaction. Package lock, with a fence (prices.go).
//
// It needs a database in which it may create a schema, printshop, and nothing else:
//
//	DATABASE_URL=postgres://localhost/postgres go run ./examples/printshop
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/idempotency/pgstore"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// schema has all of the shop's tables, and those of the libraries.
const schema = "printshop"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Getenv("DATABASE_URL")); err != nil {
		fmt.Fprintln(os.Stderr, "printshop:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, database string) error {
	if database == "" {
		return errors.New("DATABASE_URL must be set")
	}
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrate(ctx, pool); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	for _, part := range []func(context.Context, *pgxpool.Pool) error{takeOrders, printOrders, changePrices} {
		if err := part(ctx, pool); err != nil {
			return err
		}
	}
	return nil
}

// migrate makes the tables unless they are there. A program with a migration tool gives it the same statements.
func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if err := pglock.Schema(schema).Install(ctx, pool); err != nil {
		return err
	}
	if err := pgstore.Install(ctx, pool, schema); err != nil {
		return err
	}
	statements := []string{
		`CREATE TABLE IF NOT EXISTS printshop.orders (
			id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
			item       text NOT NULL,
			status     text NOT NULL DEFAULT 'queued',
			ordered_at timestamptz NOT NULL DEFAULT now())`,
		`CREATE TABLE IF NOT EXISTS printshop.prints (
			order_id bigint NOT NULL REFERENCES printshop.orders,
			attempt  bigint NOT NULL,
			printer  text NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS printshop.prices (item text PRIMARY KEY, cents bigint NOT NULL)`,
		orders.DDL(), // The claim's columns.
	}
	for _, statement := range append(statements, orders.Indexes()...) {
		if _, err := pool.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
