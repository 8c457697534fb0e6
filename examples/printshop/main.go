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
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/idempotency/pgstore"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// schema has all of the shop's tables, and those of the libraries.
const schema = "printshop"

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	check(err)
	defer pool.Close()
	migrate(ctx, pool)
	takeOrders(ctx, pool)
	printOrders(ctx, pool)
	changePrices(ctx, pool)
}

// migrate makes the tables unless they are there. A program with a migration tool gives it the same statements.
func migrate(ctx context.Context, pool *pgxpool.Pool) {
	check(pglock.Schema(schema).Install(ctx, pool))
	check(pgstore.Install(ctx, pool, schema))
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
		_, err := pool.Exec(ctx, statement)
		check(err)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
