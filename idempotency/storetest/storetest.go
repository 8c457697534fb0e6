// Package storetest is the conformance suite of idempotency stores: every store of package idempotency passes the same one.
//
// [Run] tries, on real servers, what a store promises by itself, what the middleware promises on top of it, and that
// guarantees I1 to I3 hold under many concurrent duplicates, when the executing process dies at each point of an execution,
// when it is stopped for longer than its lease, and when the store's server is killed and started again under load.
//
// A process that dies is a middleware whose store answers nothing any more from a named point on. FAIRLEAD_TORTURE=1 makes
// the counts those of a long run.
package storetest

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// Harness is a store that one test has for itself.
type Harness struct {
	// Open returns the store as one more process would have it. What it needs is closed at the test's end.
	Open func() idempotency.Store
	// Restart kills the server, without a word, and starts it again on what it had kept. Nil: there is no server.
	Restart func()
}

// Run runs the suite. Each test gets a harness of its own; those that restart the server ask for one by restarts.
func Run(t *testing.T, harness func(t *testing.T, restarts bool) Harness) {
	t.Helper()
	for _, test := range []struct {
		name     string
		run      func(*suite)
		restarts bool
	}{
		{"Life", (*suite).life, false},
		{"AnswersAreKeptToTheByte", (*suite).exact, false},
		{"CallsMayBeRepeated", (*suite).repeated, false},
		{"TakenOverAfterTheLease", (*suite).takenOver, false},
		{"ExtendedLease", (*suite).extended, false},
		{"Parked", (*suite).parked, false},
		{"Retention", (*suite).retention, false},
		{"RacesHaveOneWinner", (*suite).races, false},

		{"Keys", (*suite).keys, false},
		{"Replay", (*suite).replay, false},
		{"ScopesAndPrincipals", (*suite).scopes, false},
		{"Undecided", (*suite).undecided, false},
		{"Caps", (*suite).caps, false},
		{"InFlight", (*suite).inFlight, false},
		{"ClientGoesAway", (*suite).clientGone, false},
		{"Panic", (*suite).panics, false},
		{"NoStreaming", (*suite).noStreaming, false},
		{"StoreIsAway", (*suite).away, false},
		{"OutcomesAreTrue", (*suite).outcomes, false},
		{"BeginWithoutAnAnswer", (*suite).lostBegin, false},
		{"OuterHeaders", (*suite).outerHeaders, false},
		{"ConsumedBody", (*suite).consumed, false},
		{"Hosts", (*suite).hosts, false},
		{"ResponseController", (*suite).controlled, false},

		{"ConcurrentDuplicates", (*suite).duplicates, false},
		{"CrashAtEachPointParked", (*suite).crashParked, false},
		{"CrashAtEachPointResolved", (*suite).crashResolved, false},
		{"CrashAtEachPointFreed", (*suite).crashFreed, false},
		{"StoppedHandlerIsFenced", (*suite).stopped, false},
		{"ServerRestarts", (*suite).restarts, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(&suite{T: t, h: harness(t, test.restarts)})
		})
	}
}

// suite is one test.
type suite struct {
	*testing.T

	h Harness
}

// patience bounds what should be quick on an idle machine, and may run on a busy one.
const patience = 60 * time.Second

// short is a lease that is meant to run out, long one that is not.
const (
	short = idempotency.MinLease
	long  = 10 * time.Minute
)

func (s *suite) ctx() context.Context {
	s.Helper()
	return testwait.Context(s, patience)
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// eventually polls until ok holds.
func (s *suite) eventually(what string, ok func() bool) {
	s.Helper()
	testwait.Eventually(s, patience, what, ok)
}

// request is one of a new key.
func request() idempotency.Request {
	return idempotency.Request{
		ID: idempotency.NewID("p", http.MethodPost, "/", uuid.NewString()), Fingerprint: idempotency.NewFingerprint([]byte("content")),
		Execution: uuid.New(),
	}
}

// again is the same request, sent again.
func again(r idempotency.Request) idempotency.Request {
	r.Execution = uuid.New()
	return r
}

func terms(lease time.Duration) idempotency.Terms {
	return idempotency.Terms{Lease: lease, Retention: 24 * time.Hour}
}

func parking(lease time.Duration) idempotency.Terms {
	t := terms(lease)
	t.OnCrash = idempotency.ParkAsUnknown
	return t
}

// begin begins a request and fails unless it gets into the phase.
func (s *suite) begin(store idempotency.Store, r idempotency.Request, t idempotency.Terms, want idempotency.Phase) idempotency.Entry {
	s.Helper()
	e, err := store.Begin(s.ctx(), r, t)
	if err != nil || e.Phase != want {
		s.Fatalf("begin: phase %d, %v; want phase %d", e.Phase, err, want)
	}
	if want == idempotency.Started && (e.Grant.ID != r.ID || e.Grant.Execution != r.Execution || e.Grant.Fence < 1) {
		s.Fatalf("granted %+v for %+v", e.Grant, r)
	}
	return e
}

func (s *suite) phase(store idempotency.Store, id idempotency.ID, want idempotency.Phase) {
	s.Helper()
	if e, err := store.Look(s.ctx(), id); err != nil || e.Phase != want {
		s.Errorf("phase %d, %v; want %d", e.Phase, err, want)
	}
}

func text(status int, body string) idempotency.Response {
	return idempotency.Response{Status: status, Body: []byte(body)}
}
