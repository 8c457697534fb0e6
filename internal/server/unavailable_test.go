package server

import (
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sim/wire"
)

// TestEveryRouteSaysInTimeThatTheDatabaseIsAway sends one of each kind of request, several at once, to a server with the usual
// patience whose database refuses, or is silent. The bound of 15 s finds requests that wait for longer. The strict one needs a
// machine without other load.
func TestEveryRouteSaysInTimeThatTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	bound := 15 * time.Second
	if os.Getenv("FAIRLEAD_TORTURE") != "" {
		bound = 5 * time.Second
	}
	for name, manner := range map[string]wire.Manner{"refusing": wire.Unsent, "silent": wire.Silent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnvForKinds(t, 0)
			var requests []send
			for _, kind := range kindsOfRequests() {
				s := kind.make(e)
				for range 2 {
					s.key = newUUID()
					requests = append(requests, s)
				}
			}
			e.proxy.TakeAway(0, manner)
			defer e.proxy.GiveBack()
			var group sync.WaitGroup
			answers, errs, took := make([]*http.Response, len(requests)), make([]error, len(requests)), make([]time.Duration, len(requests))
			for i, s := range requests {
				group.Go(func() {
					start := time.Now()
					answers[i], errs[i] = e.trySend(s)
					took[i] = time.Since(start)
				})
			}
			group.Wait()
			for i, s := range requests {
				must(t, errs[i])
				r := e.received(s.method, s.path, s.body, answers[i]).want(http.StatusServiceUnavailable).equal(`{"retryable":true,"outcome":"unknown"}`)
				if took[i] > bound {
					t.Errorf("%s: %s after %s", r.what, r.str("code"), took[i])
				}
			}
		})
	}
}
