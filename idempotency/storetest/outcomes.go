package storetest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// bodyLimit is what the guards of these tests take.
const bodyLimit = 100

// kind is a kind of request, and what its handler does. What it asks for is its body: another body is another request.
type kind struct {
	name    string
	earlier bool                                       // the request with body x was executed under the key before
	body    func() io.Reader                           // of the request
	handle  func(w http.ResponseWriter, effect func()) // nil: the effect, and 201
	decided bool                                       // a retry is answered from what was kept
}

func content(s string) func() io.Reader { return func() io.Reader { return strings.NewReader(s) } }

func kinds() []kind {
	long := strings.Repeat("y", bodyLimit+1)
	return []kind{
		{name: "success", body: content("x"), decided: true},
		{name: "retry", earlier: true, body: content("x"), decided: true},
		{name: "key of another request", earlier: true, body: content("y")},
		{name: "body over the limit", body: content(long)},
		{name: "retry with a body over the limit", earlier: true, body: content(long)},
		{name: "retry whose body is cut off", earlier: true, body: func() io.Reader { return io.MultiReader(strings.NewReader("x"), cutOff{}) }},
		{name: "undecided", body: content("x"), handle: func(w http.ResponseWriter, _ func()) { w.WriteHeader(http.StatusTooManyRequests) }},
		{name: "server error", body: content("x"), decided: true, handle: func(w http.ResponseWriter, effect func()) {
			effect()
			w.WriteHeader(http.StatusInternalServerError)
		}},
		{name: "answer over the limit", body: content("x"), decided: true, handle: func(w http.ResponseWriter, effect func()) {
			effect()
			_, _ = w.Write(make([]byte, idempotency.DefaultMaxResponse+1))
		}},
		{name: "refusal over the limit", body: content("x"), handle: func(w http.ResponseWriter, _ func()) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write(make([]byte, idempotency.DefaultMaxResponse+1))
		}},
		{name: "panic before the effect", body: content("x"), decided: true, handle: func(http.ResponseWriter, func()) { panic(http.ErrAbortHandler) }},
		{name: "panic after the effect", body: content("x"), decided: true, handle: func(_ http.ResponseWriter, effect func()) {
			effect()
			panic(http.ErrAbortHandler)
		}},
	}
}

// cutOff is a client's connection that breaks.
type cutOff struct{}

// Read implements [io.Reader].
func (cutOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// outcomes takes the store away at each of its calls of each kind of request, and compares what is said with what happened.
func (s *suite) outcomes() {
	for _, policy := range []idempotency.CrashPolicy{idempotency.FreeAfterLease, idempotency.ParkAsUnknown} {
		for _, k := range kinds() {
			s.Run(fmt.Sprintf("%s/policy %d", k.name, policy), func(t *testing.T) {
				t.Parallel()
				s := &suite{T: t, h: s.h}
				for _, effect := range []bool{false, true} {
					for n := 1; s.outcome(k, policy, n, effect); n++ {
						if n > 50 {
							s.Fatal("the store is called without end")
						}
					}
				}
			})
		}
	}
}

// outcome is one request during which the store goes away at its n-th call; it reports whether there was one.
func (s *suite) outcome(k kind, policy idempotency.CrashPolicy, n int, effect bool) bool {
	what := fmt.Sprintf("away at call %d, with its effect %v", n, effect)
	store, key := newFading(s.h.Open()), uuid.NewString()
	var effects, runs atomic.Int64
	o := idempotency.Options{Store: store, OnCrash: policy, Lease: 20 * short, StoreTimeout: 10 * short, MaxBody: bodyLimit}
	h := s.guard(o).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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
		r := httptest.NewRequestWithContext(s.ctx(), http.MethodPost, "/a", body)
		r.Header.Set(idempotency.KeyHeader, key)
		w = httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	if k.earlier {
		s.eventually("the first request", func() bool { return send(strings.NewReader("x")).Code == http.StatusCreated })
	}
	store.leave(n, effect)
	s.truthful(what, send(k.body()), effects.Load())
	if store.calls.Load() < int64(n) {
		return false
	}
	store.comeBack()
	if k.name == "retry whose body is cut off" {
		k.body = content("x")
	}
	// With the store back the request comes to its end, which is no other than it was told. A key that nobody has executed under
	// is never parked.
	s.eventually(what, func() bool {
		w := send(k.body())
		s.truthful(what+", again", w, effects.Load())
		if w == nil {
			return false
		}
		return w.Code != http.StatusServiceUnavailable && (w.Code != http.StatusConflict ||
			policy == idempotency.ParkAsUnknown && runs.Load() > 0 && k.decided && bytesContain(w, idempotency.CodeOutcomeUnknown))
	})
	if n := effects.Load(); n > 1 && policy == idempotency.ParkAsUnknown {
		s.Errorf("%s: %d effects", what, n)
	}
	return true
}

// truthful compares what an answer says with how often there was an effect until it came.
func (s *suite) truthful(what string, w *httptest.ResponseRecorder, effects int64) {
	s.Helper()
	if w == nil {
		return
	}
	var p idempotency.Problem
	_ = json.Unmarshal(w.Body.Bytes(), &p) // Where it is one.
	switch {
	case w.Code == http.StatusCreated && effects == 0, p.Outcome == "applied" && effects == 0:
		s.Errorf("%s: told %d %s, without an effect", what, w.Code, w.Body)
	case p.Outcome == "not_applied" && effects > 0 && p.Code != idempotency.CodeKeyReused: // Which is about another request.
		s.Errorf("%s: told %d %s, after %d effects", what, w.Code, w.Body, effects)
	case p.Code != "" && p.Outcome == "":
		s.Errorf("%s: nothing is said of the outcome: %d %s", what, w.Code, w.Body)
	}
}

// lostBegin: an execution that was begun by a call without an answer stands in nobody's way, for the same process at once and
// for others soon.
func (s *suite) lostBegin() {
	for _, policy := range []idempotency.CrashPolicy{idempotency.FreeAfterLease, idempotency.ParkAsUnknown} {
		for _, elsewhere := range []bool{false, true} {
			store, c, key := newFading(s.h.Open()), &counter{}, uuid.NewString()
			o := idempotency.Options{Store: store, OnCrash: policy, StoreTimeout: 10 * short}
			h := s.guard(o).Wrap(c)
			store.blind.Store(true)
			s.problem("begun without an answer", ask(h, "POST", "/a", key, "x"), 503, idempotency.CodeUnavailable, true)
			store.blind.Store(false)
			if !elsewhere {
				s.want("the same process", ask(h, "POST", "/a", key, "x"), 201, "1 x")
				continue
			}
			other := s.guard(idempotency.Options{OnCrash: policy}).Wrap(c)
			s.eventually("another process", func() bool { return ask(other, "POST", "/a", key, "x").Code == http.StatusCreated })
			if n := c.n.Load(); n != 1 {
				s.Errorf("executed %d times", n)
			}
		}
	}
}
