package pglock

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/locktest"
)

const testSchema Schema = "some locks"

func install(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return testSchema.Install(ctx, conn)
}

// database is a database with the tables.
func database(t *testing.T) string {
	t.Helper()
	return pgtest.NewDatabase(t, install)
}

func pool(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	c, err := pgxpool.ParseConfig(url)
	testwait.Must(tb, err)
	c.MaxConns = 6
	p, err := pgxpool.NewWithConfig(context.Background(), c)
	testwait.Must(tb, err)
	tb.Cleanup(p.Close)
	return p
}

// open returns a backend as another process would have it.
func open(tb testing.TB, url string, o Options) *Backend {
	tb.Helper()
	o.Schema = testSchema
	b := New(pool(tb, url), o)
	tb.Cleanup(b.Close)
	return b
}

func harness(t *testing.T, url string) locktest.Harness {
	t.Helper()
	writes := pool(t, url)
	return locktest.Harness{
		BehindDeadWaiter: "lock-behind-dead-waiter",
		Open: func() (lock.Backend, func()) {
			b := open(t, url, Options{})
			return b, b.Close
		},
		OpenDoomed: func() (lock.Backend, func()) {
			p := pool(t, url)
			b := New(p, Options{Schema: testSchema})
			t.Cleanup(b.Close)
			return b, func() {
				p.Close() // Without a connection, nothing that it would still like to say is heard.
				b.Close()
			}
		},
		Fence: func(ctx context.Context, resource string, token int64) error {
			return pgx.BeginFunc(ctx, writes, func(tx pgx.Tx) error { return testSchema.Fence(ctx, tx, resource, token) })
		},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	locktest.Run(t, func(t *testing.T) locktest.Harness {
		t.Helper()
		return harness(t, database(t))
	})
}

func TestInstallTwiceAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, nil)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { testwait.Check(t, install(t.Context(), url)) })
	}
	all.Wait()
	p := pool(t, url)
	testwait.Check(t, Schema("").Install(t.Context(), p))
}

func TestEveryStatementCanBePrepared(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Functions)
	p := pool(t, database(t))
	conn, err := p.Acquire(t.Context())
	testwait.Must(t, err)
	defer conn.Release()
	st := newStatements(testSchema)
	all := st.all()
	if n := reflect.TypeFor[statements]().NumField(); n != len(all) {
		t.Errorf("all lists %d of %d statements", len(all), n)
	}
	for i, sql := range append(all, new(testSchema.in(fence))) {
		if _, err := conn.Conn().Prepare(t.Context(), fmt.Sprint("s", i), *sql); err != nil {
			t.Errorf("%v\n%s", err, *sql)
		}
	}
}
