package server

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
)

// TestEveryRouteSaysInTimeThatTheDatabaseIsAway sends one of each kind of request, several at once, to servers with the usual
// patience whose database refuses, or is silent. What counts is the slowest answer of all.
func TestEveryRouteSaysInTimeThatTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	manners := []wire.Manner{wire.Unsent, wire.Silent}
	envs := []*env{newEnvForKinds(t, 0), newEnvForKinds(t, 0)}
	testpromise.Check(t, "unavailable", func() time.Duration {
		requests := make([][]send, len(envs))
		for i, e := range envs {
			for _, kind := range kindsOfRequests() {
				e.patient = true
				s := kind.make(e)
				e.patient = false
				for range 2 {
					s.key = newUUID()
					requests[i] = append(requests[i], s)
				}
			}
		}
		slowest := make([]time.Duration, len(envs))
		var group sync.WaitGroup
		for i, e := range envs {
			e.proxy.TakeAway(0, manners[i])
			group.Go(func() { slowest[i] = e.allUnavailable(requests[i]) })
		}
		group.Wait()
		for _, e := range envs {
			e.proxy.GiveBack()
			eventually(t, patience, "the database is back", func() bool {
				return e.post("/v1/deposits", `{"account":"alice","amount":1}`).status == http.StatusCreated
			})
		}
		return max(slowest[0], slowest[1])
	})
}

// allUnavailable sends requests at once, wants each to be told that the database is away, and returns the longest that one took.
func (e *env) allUnavailable(requests []send) (slowest time.Duration) {
	e.t.Helper()
	answers, errs, took := make([]*http.Response, len(requests)), make([]error, len(requests)), make([]time.Duration, len(requests))
	var group sync.WaitGroup
	for i, s := range requests {
		group.Go(func() {
			start := time.Now()
			answers[i], errs[i] = e.trySend(s)
			took[i] = time.Since(start)
		})
	}
	group.Wait()
	which := ""
	for i, s := range requests {
		if errs[i] != nil {
			e.t.Errorf("%s: %v", s.path, errs[i])
			continue
		}
		e.received(s.method, s.path, s.body, answers[i]).want(http.StatusServiceUnavailable).equal(`{"retryable":true,"outcome":"unknown"}`)
		if took[i] > slowest {
			slowest, which = took[i], s.method+" "+s.path
		}
	}
	e.t.Logf("the slowest answer, after %v: %s", slowest, which)
	return slowest
}
