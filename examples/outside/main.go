// Outside uses each public package of Fairlead from a module of its own, as a reader's program does: an embedded server on a
// private PostgreSQL in the directory it is given, and the library's packages on the same database.
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
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
	"github.com/fairlead-dev/fairlead/redisclient/goredisclient"
	"github.com/fairlead-dev/fairlead/redisclient/rueidisclient"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// These need a Redis or an etcd to run. Here the compiler checks that they implement their interfaces.
var (
	_ lock.Backend      = (*etcdlock.Backend)(nil)
	_ lock.Backend      = (*redislock.Backend)(nil)
	_ idempotency.Store = (*idempotencyredis.Store)(nil)
	_                   = func(c *redis.Client) (lock.Backend, error) {
		return redislock.New(goredisclient.New(c), redislock.Options{})
	}
	_ = func(c rueidis.Client) checkpoint.Store { return checkpointredis.New(rueidisclient.New(c)) }
)

const schema = "outside"

func main() {
	ctx := context.Background()
	server, err := fairlead.Open(ctx, fairlead.Options{Data: os.Args[1], BeaconChain: "none"})
	check(err)
	defer func() { check(server.Close(ctx)) }()
	_, err = server.Client().CreateAccount(ctx, client.CreateAccountRequest{ID: "ann", Currency: "EUR"})
	check(err)
	pool, err := pgxpool.New(ctx, server.DatabaseURL())
	check(err)
	defer pool.Close()
	_, err = pool.Exec(ctx, "CREATE SCHEMA outside; CREATE TABLE outside.jobs (id bigint PRIMARY KEY); INSERT INTO outside.jobs VALUES (7)")
	check(err)
	draws()
	locks(ctx, pool)
	claims(ctx, pool)
	keys(ctx, pool)
	steps(ctx, pool)
	sagas(ctx, pool)
	fmt.Println("all public packages work from another module")
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func draws() {
	in := fairdraw.Input{
		Campaign: "c", Seed: fairdraw.Seed{1}, Prizes: []fairdraw.Prize{{Name: "p", Quantity: 1}},
		Positions: []fairdraw.Position{{ID: "a", Layer: 1, Number: 1, Account: "ann"}},
	}
	drawn, err := fairdraw.Draw(in)
	check(err)
	check(fairdraw.NewProof(in, drawn).Verify())
	check(fairdraw.NewProof(in, drawn).VerifyBeacon(beacon.Trust()))
	dice, err := multidraw.New(in.Seed, "dice", multidraw.Spec{Range: &multidraw.Range{Min: 1, Max: 6}})
	check(err)
	if n := len(dice.Ints(0, 10)); n != 10 {
		panic(fmt.Sprint(n, " draws"))
	}
}

func locks(ctx context.Context, pool *pgxpool.Pool) {
	check(pglock.Schema(schema).Install(ctx, pool))
	backend := pglock.New(pool, pglock.Options{Schema: schema})
	defer backend.Close()
	held, err := lock.New(backend, lock.LockerOptions{}).Acquire(ctx, []string{"job/7"}, lock.Options{TTL: time.Minute})
	check(err)
	check(pgx.BeginFunc(held.Context(), pool, func(tx pgx.Tx) error {
		return pglock.Schema(schema).Fence(ctx, tx, "job/7", held.Token("job/7"))
	}))
	check(held.Release(ctx))
}

func claims(ctx context.Context, pool *pgxpool.Pool) {
	table := claim.Table{Name: schema + ".jobs"}
	_, err := pool.Exec(ctx, table.DDL())
	check(err)
	jobs := claim.Must[int64](table)
	c, err := jobs.Claim(ctx, pool, 7)
	check(err)
	check(jobs.Finish(ctx, pool, c, nil))
}

func keys(ctx context.Context, pool *pgxpool.Pool) {
	check(idempotencypg.Install(ctx, pool, schema))
	for _, store := range []idempotency.Store{memstore.New(), idempotencypg.New(pool, idempotencypg.Options{Schema: schema})} {
		guard, err := idempotency.New(idempotency.Options{Store: store, Principal: idempotency.Everybody})
		check(err)
		calls := 0
		h := guard.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
		for range 2 {
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders", strings.NewReader("{}"))
			r.Header.Set("Idempotency-Key", "one")
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		if calls != 1 {
			panic(fmt.Sprint(calls, " calls"))
		}
	}
}

// letters is an operation of two steps.
type letters struct{}

func (letters) Count() int                                             { return 2 }
func (letters) Do(context.Context, int) (string, error)                { return "posted", nil }
func (letters) Undo(context.Context, checkpoint.Done[string]) error    { return nil }
func open([]string, checkpoint.Seed) (checkpoint.Steps[string], error) { return letters{}, nil }

func steps(ctx context.Context, pool *pgxpool.Pool) {
	check(checkpointpg.Install(ctx, pool, schema))
	runner, err := checkpoint.New(checkpoint.Definition[[]string, string]{Name: "letters", Open: open}, checkpointpg.New(pool, schema), nil, checkpoint.Options{})
	check(err)
	_, err = runner.Run(ctx, checkpoint.Key{LockKey: "post", ID: "1"}, []string{"ann", "ben"}, checkpoint.Call{})
	check(err)
}

func sagas(ctx context.Context, pool *pgxpool.Pool) {
	check(pgsaga.Schema(schema).Install(ctx, pool))
	shop := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: schema})
	take := func(context.Context, pgx.Tx, saga.Call) (saga.Outcome, error) { return saga.Outcome{}, nil }
	orders := saga.NewService(pgsaga.NewLog(pool, pgsaga.LogOptions{Schema: schema}), saga.Options{
		Definitions: []saga.Definition{{Name: "order", Plan: func(*saga.Saga) (saga.Plan, error) {
			return saga.Plan{Steps: []saga.Step{shop.Step("take", take, take)}}, nil
		}}},
	})
	order, err := orders.Run(ctx, saga.New{Name: "order", ID: uuid.New()})
	check(err)
	if order.Status != saga.Completed {
		panic(fmt.Sprint("the order is ", order.Status))
	}
	check(orders.Close(ctx))
}
