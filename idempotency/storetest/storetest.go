// Package storetest is the conformance suite of idempotency stores: every store of package idempotency passes the same one.
//
// [Run] tries, on real servers, what a store promises by itself, and that guarantees I1 to I3 hold for the middleware on it under
// many concurrent duplicates, when the executing process dies at each point of an execution, when it is stopped for longer than
// its lease, and when the store's server is killed and started again under load. What the middleware does by itself, whatever
// store it has, is tested beside it.
//
// A process that dies is a middleware whose store answers nothing any more from a named point on. FAIRLEAD_TORTURE=1 makes
// the counts those of a long run.
package storetest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// Harness is a store that one test has for itself.
type Harness struct {
	// Open opens the store as another process would. What it needs is closed at the test's end.
	Open func() idempotency.Store
	// Restart kills the server, without a word, and starts it again on what it had kept. Nil: there is no server.
	Restart func()
}

func tests() conformance.Suite[*suite] {
	of := conformance.NewTrial[*suite]
	return conformance.Suite[*suite]{
		of("Life", "I1 I2", "a key goes from its request over its execution to its answer, which stays", (*suite).life),
		of("AnswersAreKeptToTheByte", "I2", "answers of all kinds come back byte for byte", (*suite).exact),
		of("CallsMayBeRepeated", "I3", "each call to the store, repeated as if its answer was lost, changes nothing more", (*suite).repeated),
		of("TakenOverAfterTheLease", "I1", "another execution begins when the lease has ended, and fences the first", (*suite).takenOver),
		of("ExtendedLease", "I1", "an execution that extends its lease keeps its key", (*suite).extended),
		of("Parked", "I3", "a key whose execution died with an unknown outcome is not executed again", (*suite).parked),
		of("Retention", "I2", "an answer is kept for its time, and then forgotten", (*suite).retention),
		of("TermsArePositive", "I2", "an execution without a lease or a retention does not begin", (*suite).badTerms),
		of("RacesHaveOneWinner", "I1", "of many who begin, complete or release at once, one does", (*suite).races),
		of("ConcurrentDuplicates", "I1 I2", "of 50 copies of a request at two processes, one is executed, and all get its answer", (*suite).duplicates),
		of("CrashAtEachPointParked", "I1 I3", "the process dies at each point of a request whose effect can be looked for: there is one effect", (*suite).crashParked),
		of("CrashAtEachPointFreed", "I1 I2", "the process dies at each point of a request that may be repeated: the next has a greater fence", (*suite).crashFreed),
		of("StoppedHandlerIsFenced", "I1 I2", "a handler that was stopped past its lease can't keep its answer", (*suite).stopped),
		of(restarts, "I1 I2 I3", "the server is killed and started again under load", (*suite).restarts),
	}
}

// Checks lists what the suite has, in order.
func Checks() []conformance.Check { return tests().Checks() }

// Run runs the suite. Each check gets a harness of its own; the one that restarts the server asks for it by restarts.
func Run[T conformance.Test[T]](t T, harness func(t T, restarts bool) Harness) {
	t.Helper()
	conformance.Run(t, tests(), func(t T, c conformance.Check) *suite {
		t.Parallel()
		return &suite{TB: t, h: harness(t, c.Name == restarts)}
	})
}

// restarts is the check that needs a server of its own.
const restarts = "ServerRestarts"

// suite is one check.
type suite struct {
	conformance.TB

	h Harness
}

// patience bounds what should be quick on an idle machine, and may run on a busy one.
const patience = testwait.Patience

// short is a lease that is meant to run out, long one that is not.
const (
	short = idempotency.MinLease
	long  = 10 * time.Minute
)

func (s *suite) ctx() context.Context { return testwait.Context(s.TB, patience) }

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

// another is another request under the key.
func another(r idempotency.Request) idempotency.Request {
	r.Fingerprint = idempotency.NewFingerprint([]byte("other"))
	return again(r)
}

func terms(lease time.Duration) idempotency.Terms {
	return idempotency.Terms{Lease: lease, Retention: 24 * time.Hour}
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

// start begins a request that must be granted.
func (s *suite) start(store idempotency.Store, r idempotency.Request, t idempotency.Terms) idempotency.Grant {
	s.Helper()
	return s.begin(store, r, t, idempotency.Started).Grant
}

// complete keeps an answer, which must be the one that is kept.
func (s *suite) complete(store idempotency.Store, g idempotency.Grant, body string) {
	s.Helper()
	if kept, err := store.Complete(s.ctx(), g, text(http.StatusCreated, body)); err != nil || string(kept.Body) != body {
		s.Fatalf("complete: %+v, %v", kept, err)
	}
}

func (s *suite) phase(store idempotency.Store, id idempotency.ID, want idempotency.Phase) {
	s.Helper()
	if e, err := store.Look(s.ctx(), id); err != nil || e.Phase != want {
		s.Errorf("phase %d, %v; want %d", e.Phase, err, want)
	}
}

// until polls until a look at the key finds what is wanted.
func (s *suite) until(store idempotency.Store, id idempotency.ID, what string, wanted func(idempotency.Entry) bool) {
	s.Helper()
	testwait.Eventually(s, patience, what, func() bool {
		e, err := store.Look(s.ctx(), id)
		return err == nil && wanted(e)
	})
}

// refused fails unless another request under the key is refused.
func (s *suite) refused(store idempotency.Store, r idempotency.Request) {
	s.Helper()
	if _, err := store.Begin(s.ctx(), another(r), terms(long)); !errors.Is(err, idempotency.ErrKeyReused) {
		s.Fatalf("another request under the key: %v", err)
	}
}

// lost fails unless an execution is refused everything, or with an answer everything but that.
func (s *suite) lost(store idempotency.Store, g idempotency.Grant, answered bool) {
	s.Helper()
	refusals := map[string]error{"extend": store.Extend(s.ctx(), g, long), "release": store.Release(s.ctx(), g)}
	if !answered {
		_, refusals["complete"] = store.Complete(s.ctx(), g, text(http.StatusOK, "late"))
	}
	for what, err := range refusals {
		if !isLost(err) {
			s.Errorf("%s of an execution that has no say any more: %v", what, err)
		}
	}
}

func text(status int, body string) idempotency.Response {
	return idempotency.Response{Status: status, Body: []byte(body)}
}
