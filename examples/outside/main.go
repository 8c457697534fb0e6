// Outside uses each public package of Fairlead from a module of its own, as a reader's program does: an embedded server on a
// private PostgreSQL in the directory it is given, and the library's packages on the same database.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/checkpoint"
	checkpointpg "github.com/fairlead-dev/fairlead/checkpoint/pgstore"
	checkpointredis "github.com/fairlead-dev/fairlead/checkpoint/redisstore"
	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/idempotency/memstore"
	idempotencypg "github.com/fairlead-dev/fairlead/idempotency/pgstore"
	idempotencyredis "github.com/fairlead-dev/fairlead/idempotency/redisstore"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/etcdlock"
	"github.com/fairlead-dev/fairlead/lock/pglock"
	"github.com/fairlead-dev/fairlead/lock/redislock"
	"github.com/fairlead-dev/fairlead/multidraw"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// These need a Redis or an etcd to do anything. That they are what their interfaces want is proven without one.
var (
	_ lock.Backend      = (*etcdlock.Backend)(nil)
	_ lock.Backend      = (*redislock.Backend)(nil)
	_ idempotency.Store = (*idempotencyredis.Store)(nil)
	_                   = func(c rueidis.Client) checkpoint.Store { return checkpointredis.New(c) }
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "outside:", err)
		os.Exit(1)
	}
	fmt.Println("all public packages work from another module")
}

func run(ctx context.Context, data string) (err error) {
	server, err := fairlead.Open(ctx, fairlead.Options{Data: data, BeaconChain: "none"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close(ctx)) }()
	if _, err := server.Client().CreateAccount(ctx, client.CreateAccountRequest{ID: "ann", Currency: "EUR"}); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, server.DatabaseURL())
	if err != nil {
		return err
	}
	defer pool.Close()
	const schema = "outside"
	if _, err := pool.Exec(ctx, "CREATE SCHEMA outside; CREATE TABLE outside.jobs (id bigint PRIMARY KEY); INSERT INTO outside.jobs VALUES (7)"); err != nil {
		return err
	}
	for name, part := range map[string]func(context.Context, *pgxpool.Pool, string) error{
		"draws": draws, "locks": locks, "claims": claims, "keys": keys, "steps": steps, "sagas": sagas,
	} {
		if err := part(ctx, pool, schema); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func draws(context.Context, *pgxpool.Pool, string) error {
	in := fairdraw.Input{
		Campaign: "c", Seed: fairdraw.Seed{1}, Prizes: []fairdraw.Prize{{Name: "p", Quantity: 1}},
		Positions: []fairdraw.Position{{ID: "a", Layer: 1, Number: 1, Account: "ann"}},
	}
	drawn, err := fairdraw.Draw(in)
	if err != nil {
		return err
	}
	dice, err := multidraw.New(in.Seed, "dice", multidraw.Spec{Range: &multidraw.Range{Min: 1, Max: 6}})
	if err != nil {
		return err
	}
	if n := len(dice.Ints(0, 10)); n != 10 {
		return fmt.Errorf("%d draws", n)
	}
	return errors.Join(fairdraw.NewProof(in, drawn).Verify(), fairdraw.NewProof(in, drawn).VerifyBeacon(beacon.Trust()))
}

func locks(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	if err := pglock.Schema(schema).Install(ctx, pool); err != nil {
		return err
	}
	backend := pglock.New(pool, pglock.Options{Schema: pglock.Schema(schema)})
	defer backend.Close()
	held, err := lock.New(backend, lock.LockerOptions{}).Acquire(ctx, []string{"job/7"}, lock.Options{TTL: 10 * time.Second})
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(held.Context(), pool, func(tx pgx.Tx) error {
		return pglock.Schema(schema).Fence(ctx, tx, "job/7", held.Token("job/7"))
	})
	return errors.Join(err, held.Release(ctx))
}

func claims(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	table := claim.Table{Name: schema + ".jobs"}
	if _, err := pool.Exec(ctx, table.DDL()); err != nil {
		return err
	}
	jobs := claim.Must[int64](table)
	c, err := jobs.Claim(ctx, pool, 7)
	if err != nil {
		return err
	}
	return jobs.Finish(ctx, pool, c, nil)
}

func keys(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	if err := idempotencypg.Install(ctx, pool, schema); err != nil {
		return err
	}
	for _, store := range []idempotency.Store{memstore.New(), idempotencypg.New(pool, idempotencypg.Options{Schema: schema})} {
		guard, err := idempotency.New(idempotency.Options{Store: store, Principal: idempotency.Everybody})
		if err != nil {
			return err
		}
		calls := 0
		h := guard.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
		for range 2 {
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders", strings.NewReader("{}"))
			r.Header.Set("Idempotency-Key", "one")
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		if calls != 1 {
			return fmt.Errorf("%d calls", calls)
		}
	}
	return nil
}

// letters is an operation of two steps.
type letters struct{}

func (letters) Count() int                                             { return 2 }
func (letters) Do(context.Context, int) (string, error)                { return "posted", nil }
func (letters) Undo(context.Context, checkpoint.Done[string]) error    { return nil }
func open([]string, checkpoint.Seed) (checkpoint.Steps[string], error) { return letters{}, nil }

func steps(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	if err := checkpointpg.Install(ctx, pool, schema); err != nil {
		return err
	}
	runner, err := checkpoint.New(checkpoint.Definition[[]string, string]{Name: "letters", Open: open}, checkpointpg.New(pool, schema), nil, checkpoint.Options{})
	if err != nil {
		return err
	}
	_, err = runner.Run(ctx, checkpoint.Key{LockKey: "post", ID: "1"}, []string{"ann", "ben"}, checkpoint.Call{})
	return err
}

func sagas(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	s := pgsaga.Schema(schema)
	if err := s.Install(ctx, pool); err != nil {
		return err
	}
	shop := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: s})
	take := func(context.Context, pgx.Tx, saga.Call) (saga.Outcome, error) { return saga.Outcome{}, nil }
	orders := saga.NewService(pgsaga.NewLog(pool, pgsaga.LogOptions{Schema: s}), saga.Options{
		Definitions: []saga.Definition{{Name: "order", Plan: func(*saga.Saga) (saga.Plan, error) {
			return saga.Plan{Steps: []saga.Step{shop.Step("take", take, take)}}, nil
		}}},
	})
	order, err := orders.Run(ctx, saga.New{Name: "order", ID: uuid.New()})
	if err == nil && order.Status != saga.Completed {
		err = fmt.Errorf("the order is %s", order.Status)
	}
	return errors.Join(err, orders.Close(ctx))
}
