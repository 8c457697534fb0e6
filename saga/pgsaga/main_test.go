package pgsaga_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// patience bounds every wait of these tests; a loaded machine may need some of it, a bug all.
const patience = testwait.Patience

const testSchema pgsaga.Schema = "some sagas"

// install makes the tables, and one in which steps leave their effects, in the order of happening.
func install(ctx context.Context, url string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if err := testSchema.Install(ctx, conn); err != nil {
		return err
	}
	if err := testSchema.Install(ctx, conn); err != nil { // There is nothing left to do.
		return err
	}
	_, err = conn.Exec(ctx, `CREATE TABLE effects (seq bigserial, saga uuid, step text);
		CREATE TABLE stock (item text PRIMARY KEY, left_over int CHECK (left_over >= 0)); INSERT INTO stock VALUES ('lamp', 2);
		CREATE TABLE accounts (owner text PRIMARY KEY, cents bigint CHECK (cents >= 0)); INSERT INTO accounts VALUES ('ann', 500), ('ben', 500)`)
	return err
}

func newPool(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	return poolOf(tb, pgtest.NewDatabase(tb, install))
}

// newWholePool is newPool of a database that lacks nothing, whatever the run switches off.
func newWholePool(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	url := pgtest.Without(tb, pgtest.NewDatabase(tb, nil))
	testwait.Must(tb, install(context.Background(), url))
	return poolOf(tb, url)
}

func poolOf(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	c, err := pgxpool.ParseConfig(url)
	testwait.Must(tb, err)
	c.MaxConns = 12
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	testwait.Must(tb, err)
	tb.Cleanup(pool.Close)
	return pool
}

// process is a service as another process would have it.
type process struct {
	*saga.Service

	die context.CancelFunc // ends what keeps its leases, as its death would
}

func newProcess(tb testing.TB, pool *pgxpool.Pool, o saga.Options) *process {
	tb.Helper()
	log := pgsaga.NewLog(pool, pgsaga.LogOptions{Schema: testSchema})
	var err error
	if o.Coordinator, err = log.Coordinator(context.Background()); err != nil {
		tb.Fatal(err)
	}
	if o.LeaseTTL == 0 {
		o.LeaseTTL = time.Second
	}
	o.ReconcileEvery = 100 * time.Millisecond
	if o.MaxPause == 0 {
		o.MaxPause = 20 * time.Millisecond
	}
	p := &process{Service: saga.NewService(log, o)}
	var reconciling context.Context
	reconciling, p.die = context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.Reconcile(reconciling)
	}()
	tb.Cleanup(func() {
		p.die()
		<-stopped
		closing, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Close(closing); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return p
}

// effect is what steps of these tests do.
func effect(ctx context.Context, tx pgx.Tx, c saga.Call) (saga.Outcome, error) {
	_, err := tx.Exec(ctx, `INSERT INTO effects (saga, step) VALUES ($1, $2)`, c.Saga, c.Key())
	return saga.Outcome{Result: "made by " + c.Key()}, err
}

func effects(t *testing.T, pool *pgxpool.Pool, where string, args ...any) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT step FROM effects WHERE `+where+` ORDER BY seq`, args...)
	testwait.Must(t, err)
	steps, err := pgx.CollectRows(rows, pgx.RowTo[string])
	testwait.Must(t, err)
	return steps
}

// exampleTB lets examples, which have no test to fail, use what tests use.
type exampleTB struct {
	testing.TB

	cleanups []func()
}

func (e *exampleTB) Helper()                   {}
func (e *exampleTB) Name() string              { return "Example" }
func (e *exampleTB) Cleanup(f func())          { e.cleanups = append(e.cleanups, f) }
func (e *exampleTB) Fatal(args ...any)         { panic(args) }
func (e *exampleTB) Fatalf(f string, a ...any) { panic(append([]any{f}, a...)) }
func (e *exampleTB) Errorf(f string, a ...any) { panic(append([]any{f}, a...)) }
func (e *exampleTB) Skipf(f string, a ...any)  { panic(append([]any{f}, a...)) }

// end does what the end of a test does.
func (e *exampleTB) end() {
	for _, cleanup := range slices.Backward(e.cleanups) {
		cleanup()
	}
}
