//go:build unix

package sim_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/locktest"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// TestLocksOfAllKinds lets callers of three kinds want the same keys: over HTTP by either of two servers, and in Go on the
// servers' database. To each other they are but owners and waiters.
func TestLocksOfAllKinds(t *testing.T) { //nolint:tparallel // Its parts take turns, beside other tests.
	beside(t)
	database := newDatabase(t)
	servers := []*sim.Server{newServer(t, database), newServer(t, database)}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	overHTTP := func(tb testing.TB, s *sim.Server) lock.Backend {
		tb.Helper()
		c, err := client.New(s.URL(), sim.AdminKey, client.WithHTTPClient(&http.Client{Transport: transport}))
		testwait.Must(tb, err)
		b := c.LockBackend()
		tb.Cleanup(b.Close)
		return b
	}
	t.Run("suite", func(t *testing.T) {
		locktest.Run(t, func(t *testing.T) locktest.Harness {
			t.Helper()
			var opened atomic.Int64
			return locktest.Harness{Open: func() (lock.Backend, func()) {
				n := opened.Add(1) % 3
				if n < 2 {
					return overHTTP(t, servers[n]), func() {}
				}
				pool, err := pgxpool.New(context.Background(), database)
				testwait.Must(t, err)
				b := pglock.New(pool, pglock.Options{})
				t.Cleanup(func() {
					b.Close()
					pool.Close()
				})
				return b, func() {}
			}}
		}, "DeadlockRings", "NoFalseVictims", "ManyKeysInOpposingOrders", "ElectionsHandOver", "Histories")
	})
}
