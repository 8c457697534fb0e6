//go:build unix

package sim_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/locktest"
)

// TestLocksOfAllKinds lets callers of four kinds want the same keys: over HTTP by two servers, and in Go on the servers'
// database, in this process and in another one. To each other they are but owners and waiters.
func TestLocksOfAllKinds(t *testing.T) {
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
		locktest.Run(t, func(*testing.T) locktest.Harness {
			var opened atomic.Int64
			return locktest.Harness{Open: func(tb testing.TB) (lock.Backend, func()) {
				tb.Helper()
				var b lock.Backend
				switch opened.Add(1) % 4 {
				case 1:
					b = overHTTP(tb, servers[0])
				case 2:
					b = pgLocks(tb, database)
				case 3:
					b = newLockProcess(tb, database)
				default:
					b = overHTTP(tb, servers[1])
				}
				return b, func() {}
			}}
		}, "DeadlockRings", "NoFalseVictims", "ManyKeysInOpposingOrders", "ElectionsHandOver", "Histories")
	})
}
