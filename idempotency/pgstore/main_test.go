package pgstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/idempotency/storetest"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMain(m *testing.M) {
	if order := os.Getenv(victimEnv); order != "" {
		fmt.Fprintln(os.Stderr, victim(order))
		os.Exit(1)
	}
	os.Exit(pgtest.Main(m))
}

// schemaName is not a name that needs no quotes.
const schemaName = "Shop keys"

// migrate makes the table in the search path and in a schema, several installers at once.
func migrate(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	var (
		wg   sync.WaitGroup
		errs [6]error
	)
	for i := range errs {
		wg.Go(func() { errs[i] = Install(ctx, pool, []string{"", schemaName}[i%2]) })
	}
	wg.Wait()
	_, err = pool.Exec(ctx, `CREATE TABLE effects (number bigint GENERATED ALWAYS AS IDENTITY, id bytea NOT NULL, fence bigint NOT NULL)`)
	return errors.Join(append(errs[:], err)...)
}

func connect(t *testing.T, url string, conns int32) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(url)
	testwait.Must(t, err)
	c.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	testwait.Must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// processes returns stores on two pools in turn, as two processes have them. A pool for each would take more connections than
// the server has.
func processes(t *testing.T, url string, o Options) func() idempotency.Store {
	t.Helper()
	var next atomic.Int64
	pools := [2]*pgxpool.Pool{connect(t, url, 4), connect(t, url, 4)}
	return func() idempotency.Store { return New(pools[next.Add(1)%2], o) }
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, restarts bool) storetest.Harness {
		t.Helper()
		if !restarts {
			return storetest.Harness{Open: processes(t, pgtest.NewDatabase(t, migrate), Options{Schema: schemaName})}
		}
		server := pgtest.Server(t)
		testwait.Must(t, migrate(t.Context(), server.URL()))
		return storetest.Harness{
			Open:    processes(t, server.URL(), Options{}),
			Restart: func() { kill(t, server.URL()) },
		}
	})
}

// kill lets one of the server's processes die as by a crash, which takes all others with it, and waits until it is back.
func kill(t *testing.T, url string) {
	t.Helper()
	deadline := time.Now().Add(testwait.Patience)
	conn, err := pgx.Connect(t.Context(), url)
	testwait.Must(t, err)
	var pid int
	testwait.Must(t, conn.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'`).Scan(&pid))
	process, err := os.FindProcess(pid)
	if err == nil {
		err = process.Kill()
	}
	testwait.Must(t, err)
	for conn.Ping(t.Context()) == nil { // Until it has noticed.
		if time.Now().After(deadline) {
			t.Fatal("the server lives on")
		}
	}
	_ = conn.Close(t.Context())
	for {
		conn, err := pgx.Connect(t.Context(), url)
		if err == nil {
			_ = conn.Close(t.Context())
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server does not come back: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
