package server

import (
	"testing"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/locktest"
)

// TestLocksConformOverHTTP runs the suite of all backends through two servers, by the Go client.
func TestLocksConformOverHTTP(t *testing.T) {
	t.Parallel()
	locktest.Run(t, func(t *testing.T) locktest.Harness {
		t.Helper()
		e := newEnv(t)
		servers := []*env{e, e.beside()}
		opened := 0
		return locktest.Harness{Open: func(tb testing.TB) (lock.Backend, func()) {
			tb.Helper()
			at := servers[opened%len(servers)]
			opened++
			c, err := client.New(at.url, at.admin, client.WithHTTPClient(e.http))
			if err != nil {
				tb.Fatal(err)
			}
			b := c.LockBackend()
			tb.Cleanup(b.Close)
			return b, b.Close
		}}
	})
}
