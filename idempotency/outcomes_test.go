package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/idempotency/memstore"
	"github.com/fairlead-dev/fairlead/idempotency/storetest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

var errAway = errors.New("the store is away")

// fading is a store that goes away at one of its calls, before or after the call has its effect. Calls from then on fail until it
// is back.
type fading struct {
	storetest.Faulty

	calls, at     atomic.Int64 // numbers of calls; at 0 it stays
	effect, blind atomic.Bool  // that call has its effect; Begin alone fails, after its effect
}

func newFading() *fading {
	f := &fading{}
	f.Faulty = storetest.Faulty{Store: memstore.New(), Around: func(method string, run func() error) error {
		n, at := f.calls.Add(1), f.at.Load()
		away := at != 0 && n >= at
		if !away || n == at && f.effect.Load() {
			if err := run(); err != nil {
				return err
			}
		}
		if away || method == "Begin" && f.blind.Load() {
			return errAway
		}
		return nil
	}}
	return f
}

// leave makes the store go away at the n-th call from now on; 0: it is back.
func (f *fading) leave(n int, effect bool) {
	f.calls.Store(0)
	f.effect.Store(effect)
	f.at.Store(int64(n))
}

const bodyLimit = 100

// kind is a kind of request, and what its handler does. What it asks for is its body: another body is another request.
type kind struct {
	earlier bool                                       // the request with body x was executed under the key before
	body    string                                     // of the request; x unless it says otherwise
	cutOff  bool                                       // the client's connection breaks in the body
	handle  func(w http.ResponseWriter, effect func()) // nil: the effect, and 201
	decided bool                                       // a retry is answered from what was kept
}

func kinds() map[string]kind {
	over, limit := strings.Repeat("y", bodyLimit+1), make([]byte, idempotency.DefaultMaxResponse+1)
	return map[string]kind{
		"success":                          {decided: true},
		"retry":                            {earlier: true, decided: true},
		"key of another request":           {earlier: true, body: "y"},
		"body over the limit":              {body: over},
		"retry with a body over the limit": {earlier: true, body: over},
		"retry whose body is cut off":      {earlier: true, cutOff: true},
		"undecided":                        {handle: func(w http.ResponseWriter, _ func()) { w.WriteHeader(http.StatusTooManyRequests) }},
		"server error": {decided: true, handle: func(w http.ResponseWriter, effect func()) {
			effect()
			w.WriteHeader(http.StatusInternalServerError)
		}},
		"answer over the limit": {decided: true, handle: func(w http.ResponseWriter, effect func()) {
			effect()
			_, _ = w.Write(limit)
		}},
		"refusal over the limit": {handle: func(w http.ResponseWriter, _ func()) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write(limit)
		}},
		"panic before the effect": {decided: true, handle: func(http.ResponseWriter, func()) { panic(http.ErrAbortHandler) }},
		"panic after the effect": {decided: true, handle: func(_ http.ResponseWriter, effect func()) {
			effect()
			panic(http.ErrAbortHandler)
		}},
	}
}

// cutOff is a client's connection that breaks.
type cutOff struct{}

func (cutOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestOutcomesAreTrue takes the store away at each of its calls of each kind of request, and compares what is said with what
// happened.
func TestOutcomesAreTrue(t *testing.T) {
	t.Parallel()
	for _, policy := range []idempotency.CrashPolicy{idempotency.FreeAfterLease, idempotency.ParkAsUnknown} {
		for name, k := range kinds() {
			t.Run(fmt.Sprintf("%s/policy %d", name, policy), func(t *testing.T) {
				t.Parallel()
				for _, effect := range []bool{false, true} {
					for n := 1; outcome(t, k, policy, n, effect); n++ {
						if n > 50 {
							t.Fatal("the store is called without end")
						}
					}
				}
			})
		}
	}
}

// outcome is one request during which the store goes away at its n-th call; it reports whether there was one.
func outcome(t *testing.T, k kind, policy idempotency.CrashPolicy, n int, effect bool) bool {
	t.Helper()
	what := fmt.Sprintf("away at call %d, with its effect %v", n, effect)
	store := newFading()
	var effects, runs atomic.Int64
	o := idempotency.Options{
		Store: store, OnCrash: policy, Lease: 20 * idempotency.MinLease, StoreTimeout: 10 * idempotency.MinLease, MaxBody: bodyLimit,
	}
	h := guard(t, o, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs.Add(1)
		if k.handle != nil {
			k.handle(w, func() { effects.Add(1) })
			return
		}
		effects.Add(1)
		w.WriteHeader(http.StatusCreated)
	}))
	send := func(body io.Reader) (w *httptest.ResponseRecorder) {
		defer func() {
			if p := recover(); p != nil {
				w = nil // The client sees its connection break, and knows nothing.
			}
		}()
		return askWith(t.Context(), h, "POST", "/a", "k", body)
	}
	if k.body == "" {
		k.body = "x"
	}
	if k.earlier {
		testwait.Eventually(t, patience, "the first request", func() bool { return send(strings.NewReader("x")).Code == http.StatusCreated })
	}
	store.leave(n, effect)
	var body io.Reader = strings.NewReader(k.body)
	if k.cutOff {
		body = io.MultiReader(body, cutOff{})
	}
	truthful(t, what, send(body), effects.Load())
	if store.calls.Load() < int64(n) {
		return false
	}
	store.leave(0, false)
	// With the store back the request comes to its end, which is no other than it was told. A key that nobody has executed under
	// is never parked.
	testwait.Eventually(t, patience, what, func() bool {
		w := send(strings.NewReader(k.body))
		truthful(t, what+", again", w, effects.Load())
		if w == nil {
			return false
		}
		return w.Code != http.StatusServiceUnavailable && (w.Code != http.StatusConflict ||
			policy == idempotency.ParkAsUnknown && runs.Load() > 0 && k.decided && strings.Contains(w.Body.String(), idempotency.CodeOutcomeUnknown))
	})
	if n := effects.Load(); n > 1 && policy == idempotency.ParkAsUnknown {
		t.Errorf("%s: %d effects", what, n)
	}
	return true
}

// truthful compares what an answer says with how often there was an effect until it came.
func truthful(t *testing.T, what string, w *httptest.ResponseRecorder, effects int64) {
	t.Helper()
	if w == nil {
		return
	}
	var p idempotency.Problem
	_ = json.Unmarshal(w.Body.Bytes(), &p) // Where it is one.
	switch {
	case w.Code == http.StatusCreated && effects == 0, p.Outcome == "applied" && effects == 0:
		t.Errorf("%s: told %d %s, without an effect", what, w.Code, w.Body)
	case p.Outcome == "not_applied" && effects > 0 && p.Code != idempotency.CodeKeyReused: // Which is about another request.
		t.Errorf("%s: told %d %s, after %d effects", what, w.Code, w.Body, effects)
	case p.Code != "" && p.Outcome == "":
		t.Errorf("%s: nothing is said of the outcome: %d %s", what, w.Code, w.Body)
	}
}

// TestBeginWithoutAnAnswer: an execution that was begun by a call without an answer is in nobody's way, for the same process at
// once and for others soon.
func TestBeginWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for _, policy := range []idempotency.CrashPolicy{idempotency.FreeAfterLease, idempotency.ParkAsUnknown} {
		for _, elsewhere := range []bool{false, true} {
			store, c, key := newFading(), &counter{}, uuid.NewString()
			h := guard(t, idempotency.Options{Store: store, OnCrash: policy, StoreTimeout: 10 * idempotency.MinLease}, c)
			store.blind.Store(true)
			problem(t, "begun without an answer", post(h, key, "x"), 503, idempotency.CodeUnavailable, true)
			store.blind.Store(false)
			if !elsewhere {
				want(t, "the same process", post(h, key, "x"), 201, "1 x")
				continue
			}
			other := guard(t, idempotency.Options{Store: store.Store, OnCrash: policy}, c)
			testwait.Eventually(t, patience, "another process", func() bool { return post(other, key, "x").Code == http.StatusCreated })
			if n := c.n.Load(); n != 1 {
				t.Errorf("executed %d times", n)
			}
		}
	}
}

// TestStoreIsAway: nothing is executed while the store can't be asked, and no success is answered that was not kept.
func TestStoreIsAway(t *testing.T) {
	t.Parallel()
	store, c := newFading(), &counter{}
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.ServeHTTP(w, r)
		store.leave(1, false)
	})
	store.leave(1, false)
	hasty := guard(t, idempotency.Options{Store: store, StoreTimeout: 50 * time.Millisecond}, inner)
	problem(t, "the store is away", post(hasty, "k", "x"), 503, idempotency.CodeUnavailable, true)
	if n := c.n.Load(); n != 0 {
		t.Errorf("executed %d times without a store", n)
	}
	store.leave(0, false)
	h := guard(t, idempotency.Options{Store: store, StoreTimeout: patience, Lease: 200 * time.Millisecond}, inner)
	problem(t, "the store goes away", post(h, "l", "x"), 503, idempotency.CodeOutcomeUnknown, true)
	if n := c.n.Load(); n != 1 {
		t.Errorf("executed %d times", n)
	}
	store.leave(0, false)
}

// TestStoppedHandlerIsTold: a handler that was stopped past its lease is never told that it has its key.
func TestStoppedHandlerIsTold(t *testing.T) {
	const lease = 300 * time.Millisecond
	testwait.Stopped(t, lease, func() (context.Context, time.Time) {
		begun, done := make(chan context.Context), make(chan struct{})
		store := newFading()
		h := guard(t, idempotency.Options{Store: store, Lease: lease}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			store.leave(1, false) // No lease is extended.
			begun <- r.Context()
			<-done
		}))
		t.Cleanup(func() { close(done) })
		go post(h, "k", "x")
		return <-begun, time.Now().Add(lease)
	})
}
