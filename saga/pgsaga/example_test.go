package pgsaga_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// violates reports that a CHECK of the table has said no, which is a decision and not a failure.
func violates(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.Code == "23514"
}

// move is a step, or a branch, that adds to a balance.
func move(owner string, cents int) pgsaga.Transaction {
	return func(ctx context.Context, tx pgx.Tx, _ saga.Call) (saga.Outcome, error) {
		_, err := tx.Exec(ctx, `UPDATE accounts SET cents = cents + $2 WHERE owner = $1`, owner, cents)
		if violates(err) {
			return saga.Refuse("no money"), nil
		}
		return saga.Outcome{}, err
	}
}

func take(item string, n int) pgsaga.Transaction {
	return func(ctx context.Context, tx pgx.Tx, _ saga.Call) (saga.Outcome, error) {
		_, err := tx.Exec(ctx, `UPDATE stock SET left_over = left_over - $2 WHERE item = $1`, item, n)
		if violates(err) {
			return saga.Refuse("sold out"), nil
		}
		return saga.Outcome{}, err
	}
}

// An order takes a lamp from the shelf and then the money; when there is no money, the lamp goes back. Whatever dies in
// between, some process carries it to one of the two ends.
func Example() {
	tb := &exampleTB{}
	defer tb.end()
	pool := newPool(tb) // *pgxpool.Pool, on a database where testSchema.Install has made the tables
	ctx := context.Background()

	shop := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: testSchema})
	orders := saga.NewService(pgsaga.NewLog(pool, pgsaga.LogOptions{Schema: testSchema}), saga.Options{
		Definitions: []saga.Definition{{Name: "order", Plan: func(*saga.Saga) (saga.Plan, error) {
			return saga.Plan{Steps: []saga.Step{
				shop.Step("reserve", take("lamp", 1), take("lamp", -1)),
				shop.Step("charge", move("ann", -300), move("ann", 300)),
			}}, nil
		}}},
	})
	tending, stop := context.WithCancel(ctx)
	tended := make(chan struct{})
	go func() {
		defer close(tended)
		orders.Reconcile(tending) // resumes what other processes have left
	}()
	defer func() {
		stop()
		<-tended
		if err := orders.Close(ctx); err != nil {
			fmt.Println(err)
		}
	}()

	for range 2 {
		order, err := orders.Run(ctx, saga.New{Name: "order", ID: uuid.New(), Deadline: time.Minute})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s %q\n", order.Status, order.Reason)
		for _, step := range order.Steps {
			fmt.Println(" ", step.Name, step.Status)
		}
	}
	printStock(ctx, pool)
	// Output:
	// completed ""
	//   reserve done
	//   charge done
	// compensated "no money"
	//   reserve compensated
	//   charge refused
	// lamps: 1, Ann: 200
}

func printStock(ctx context.Context, pool *pgxpool.Pool) {
	var lamps, cents int
	err := pool.QueryRow(ctx, `SELECT s.left_over, a.cents FROM stock s, accounts a WHERE a.owner = 'ann'`).Scan(&lamps, &cents)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Printf("lamps: %d, Ann: %d\n", lamps, cents)
}

// Two databases commit together, or not at all: the decision is in the log before the first of them commits.
func ExampleDatabase_Branch() {
	tb := &exampleTB{}
	defer tb.end()
	here, there := newWholePool(tb), newWholePool(tb)
	ctx := context.Background()

	own := pgsaga.NewDatabase(here, pgsaga.Options{Schema: testSchema})
	other := pgsaga.NewDatabase(there, pgsaga.Options{Schema: testSchema})
	if err := errors.Join(own.CanPrepare(ctx), other.CanPrepare(ctx)); err != nil {
		fmt.Println(err) // max_prepared_transactions is 0
		return
	}
	log := pgsaga.NewLog(here, pgsaga.LogOptions{Schema: testSchema})
	coordinator, err := log.Coordinator(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	payments := saga.NewService(log, saga.Options{
		Coordinator:  coordinator,
		Participants: map[string]saga.Participant{"here": own, "there": other},
		Definitions: []saga.Definition{{Name: "pay", Plan: func(*saga.Saga) (saga.Plan, error) {
			return saga.Plan{Branches: []saga.Branch{
				own.Branch("debit", move("ann", -300)),
				other.Branch("credit", move("ben", 300)),
			}}, nil
		}}},
	})
	tending, stop := context.WithCancel(ctx)
	tended := make(chan struct{})
	go func() {
		defer close(tended)
		payments.Reconcile(tending)
	}()
	defer func() {
		stop()
		<-tended
		if err := payments.Close(ctx); err != nil {
			fmt.Println(err)
		}
	}()

	for range 2 {
		payment, err := payments.Run(ctx, saga.New{Name: "pay", Protocol: saga.TwoPhase})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s %q\n", payment.Status, payment.Reason)
	}
	// Output:
	// completed ""
	// failed "no money"
}
