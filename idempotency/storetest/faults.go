package storetest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// world is where effects happen: what no store knows, and nothing undoes.
type world struct {
	mu      sync.Mutex
	effects map[idempotency.ID][]idempotency.Grant
}

func newWorld() *world { return &world{effects: map[idempotency.ID][]idempotency.Grant{}} }

// of returns the effects of a key that is sent by POST to /a.
func (w *world) of(key string) []idempotency.Grant {
	return w.under(idempotency.NewID("", http.MethodPost, "example.com/a", key))
}

func (w *world) under(id idempotency.ID) []idempotency.Grant {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.effects[id])
}

// answerTo is what an effect answers: another text each time it happens.
func answerTo(g idempotency.Grant) string { return fmt.Sprintf("by %s under %d", g.Execution, g.Fence) }

// ServeHTTP has its effect and says so.
func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	g, _ := idempotency.FromContext(r.Context())
	w.mu.Lock()
	w.effects[g.ID] = append(w.effects[g.ID], g)
	w.mu.Unlock()
	out.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(out, answerTo(g))
}

// guard puts a middleware in front of a handler. It opens a store of its own, as another process would, unless o has one.
func (s *suite) guard(o idempotency.Options, next http.Handler) http.Handler {
	s.Helper()
	if o.Store == nil {
		o.Store = s.h.Open()
	}
	o.Principal, o.Lease = idempotency.Everybody, cmp.Or(o.Lease, long)
	m, err := idempotency.New(o)
	testwait.Must(s, err)
	return m.Wrap(next)
}

// ask sends the request of a key.
func ask(h http.Handler, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/a", strings.NewReader("x"))
	r.Header.Set(idempotency.KeyHeader, key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// persist sends a request until it is decided, and returns the answer.
func (s *suite) persist(h http.Handler, key string) *httptest.ResponseRecorder {
	for deadline := time.Now().Add(patience); ; wait.For(s.Context(), 5*time.Millisecond) {
		w := ask(h, key)
		if w.Code == http.StatusCreated {
			return w
		}
		if time.Now().After(deadline) {
			s.Errorf("key %s: still %d %s", key, w.Code, w.Body)
			return w
		}
	}
}

func replayed(w *httptest.ResponseRecorder) bool {
	return w.Header().Get(idempotency.ReplayedHeader) == "true"
}

// duplicates: 50 requests at once for each of many keys, at two processes. I1 and I2.
func (s *suite) duplicates() {
	w := newWorld()
	for name, wait := range map[string]time.Duration{"waiting": patience, "refused": 0} {
		o := idempotency.Options{Wait: wait}
		handlers := [2]http.Handler{s.guard(o, w), s.guard(o, w)}
		slots := make(chan struct{}, 8) // keys at a time
		var wg sync.WaitGroup
		for range testwait.Count(10, 1000) {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				s.oneKey(w, handlers, uuid.NewString(), wait > 0)
			})
		}
		wg.Wait()
		if s.Failed() {
			s.Fatalf("the duplicates were %s", name)
		}
	}
}

// oneKey sends the copies of one request and compares their answers.
func (s *suite) oneKey(w *world, handlers [2]http.Handler, key string, waiting bool) {
	var (
		answers [50]*httptest.ResponseRecorder
		wg      sync.WaitGroup
		start   = make(chan struct{})
	)
	for i := range answers {
		wg.Go(func() {
			<-start
			if answers[i] = ask(handlers[i%2], key); !waiting && answers[i].Code == http.StatusConflict {
				answers[i] = s.persist(handlers[i%2], key)
			}
		})
	}
	close(start)
	wg.Wait()
	effects := w.of(key)
	if len(effects) != 1 {
		s.Errorf("I1: %d effects", len(effects))
		return
	}
	own := 0
	for _, a := range answers {
		if a.Code != http.StatusCreated || a.Body.String() != answerTo(effects[0]) {
			s.Errorf("I2: %d %s", a.Code, a.Body)
		}
		if !replayed(a) {
			own++
		}
	}
	if own != 1 {
		s.Errorf("%d answers are not marked as replayed", own)
	}
}

// crashes lets a process die at each point of a request, which panics out of it as a connection that breaks, and calls check with
// the options of those that live.
func (s *suite) crashes(o idempotency.Options, w *world, check func(at point, key string, live idempotency.Options)) {
	for _, at := range points() {
		for range testwait.Count(3, 100) {
			key, dying, m := uuid.NewString(), o, newMortal(s.h.Open(), at)
			dying.Store, dying.Lease = m, short
			h := s.guard(dying, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
				w.ServeHTTP(out, r)
				if at == effect {
					m.die()
				}
			}))
			func() {
				defer func() {
					if p := recover(); p != errDead { //nolint:errorlint // As it was thrown.
						s.Errorf("%s: the process did not die, but %v", at, p)
					}
				}()
				_ = ask(h, key)
			}()
			check(at, key, o)
		}
	}
}

// crashParked: I1 with handlers that nothing undoes. Where it is not known whether the effect was had, it is not repeated.
func (s *suite) crashParked() {
	w := newWorld()
	s.crashes(idempotency.Options{OnCrash: idempotency.ParkAsUnknown}, w, func(at point, key string, live idempotency.Options) {
		h := s.guard(live, w)
		known := at == beforeBegin || at == kept
		var last *httptest.ResponseRecorder
		testwait.Eventually(s, patience, string(at), func() bool {
			last = ask(h, key)
			return last.Code == http.StatusCreated || last.Code == http.StatusConflict && !strings.Contains(ask(h, key).Body.String(), idempotency.CodeInFlight)
		})
		if want := map[bool]int{true: 201, false: 409}[known]; last.Code != want {
			s.Errorf("%s: %d %s", at, last.Code, last.Body)
		}
		if n := len(w.of(key)); n > 1 || known && n != 1 {
			s.Errorf("%s: %d effects", at, n)
		}
	})
}

// crashResolved: I3. With a Resolve that can look for the effect, there is exactly one, whatever died.
func (s *suite) crashResolved() {
	w := newWorld()
	o := idempotency.Options{
		OnCrash: idempotency.ParkAsUnknown, Wait: time.Second,
		Resolve: func(_ context.Context, r *http.Request, g idempotency.Grant) (*idempotency.Response, error) {
			if body, err := io.ReadAll(r.Body); err != nil || string(body) != "x" {
				return nil, fmt.Errorf("asked with %q: %w", body, err)
			}
			effects := w.under(g.ID)
			if len(effects) == 0 {
				return nil, nil //nolint:nilnil // No effect: that is what it says.
			}
			return new(text(http.StatusCreated, answerTo(effects[0]))), nil
		},
	}
	s.crashes(o, w, s.duplicated(w, func(_ point, effects []idempotency.Grant) bool { return len(effects) == 1 }))
}

// crashFreed: after the lease the next request executes, under a greater fence, which tells the earlier effect from its own.
func (s *suite) crashFreed() {
	w := newWorld()
	s.crashes(idempotency.Options{Wait: time.Second}, w, s.duplicated(w, func(at point, effects []idempotency.Grant) bool {
		if at == effect {
			return len(effects) == 2 && effects[1].Fence > effects[0].Fence
		}
		return len(effects) == 1
	}))
}

// duplicated lets duplicates of a request arrive at two processes after the death of another, and compares their answers.
func (s *suite) duplicated(w *world, right func(point, []idempotency.Grant) bool) func(point, string, idempotency.Options) {
	return func(at point, key string, live idempotency.Options) {
		handlers := [2]http.Handler{s.guard(live, w), s.guard(live, w)}
		var (
			wg      sync.WaitGroup
			answers [6]*httptest.ResponseRecorder
		)
		for i := range answers {
			wg.Go(func() { answers[i] = s.persist(handlers[i%2], key) })
		}
		wg.Wait()
		effects := w.of(key)
		if !right(at, effects) {
			s.Errorf("%s: effects %+v", at, effects)
		}
		for _, a := range answers {
			if len(effects) == 0 || a.Body.String() != answerTo(effects[len(effects)-1]) {
				s.Errorf("%s: I2: %s, effects %+v", at, a.Body, effects)
			}
		}
	}
}

// stopped: a handler that is stopped for longer than its lease learns that, can't keep its answer, and gets the other's.
func (s *suite) stopped() {
	for range testwait.Count(3, 200) {
		w := newWorld()
		m := newMortal(s.h.Open(), "")
		m.cut = true
		key := uuid.NewString()
		begun, wake := make(chan struct{}), make(chan struct{})
		stopped := s.guard(idempotency.Options{Store: m, Lease: short}, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			close(begun)
			<-wake
			select {
			case <-r.Context().Done():
			case <-time.After(patience):
			}
			if cause := context.Cause(r.Context()); !isLost(cause) {
				s.Errorf("its context ends with %v", cause)
			}
			w.ServeHTTP(out, r)
		}))
		var (
			wg   sync.WaitGroup
			late *httptest.ResponseRecorder
		)
		wg.Go(func() { late = ask(stopped, key) })
		<-begun
		answer := s.persist(s.guard(idempotency.Options{Wait: patience}, w), key)
		close(wake)
		wg.Wait()
		effects := w.of(key)
		if len(effects) != 2 || effects[1].Fence >= effects[0].Fence {
			s.Fatalf("effects %+v: the second should be the late one's, under the lesser fence", effects)
		}
		if late.Code != http.StatusCreated || late.Body.String() != answer.Body.String() || !replayed(late) {
			s.Errorf("the late one got %d %s %v, the other %s", late.Code, late.Body, late.Header(), answer.Body)
		}
	}
}

// restarts: the store's server is killed and started again under load. I1 to I3.
func (s *suite) restarts() {
	if s.h.Restart == nil {
		s.Skip("there is no server")
	}
	w := newWorld()
	// A restart takes less than a lease here, so that nothing is taken over, and is waited for.
	o := idempotency.Options{StoreTimeout: patience, Wait: patience}
	handlers := [2]http.Handler{s.guard(o, w), s.guard(o, w)}
	for range testwait.Count(1, 10) {
		var (
			load sync.WaitGroup
			keys []string
			mu   sync.Mutex
		)
		under, stop := context.WithCancel(s.Context())
		for i := range 8 {
			load.Go(func() {
				for under.Err() == nil {
					key := uuid.NewString()
					mu.Lock()
					keys = append(keys, key)
					mu.Unlock()
					var wg sync.WaitGroup
					for range 3 {
						wg.Go(func() { s.persist(handlers[i%2], key) }) //nolint:contextcheck // It ends when it is answered.
					}
					wg.Wait()
				}
			})
		}
		wait.For(s.Context(), 50*time.Millisecond+rand.N(200*time.Millisecond)) //nolint:gosec // A moment that is no particular one.
		s.h.Restart()
		wait.For(s.Context(), 100*time.Millisecond)
		stop()
		load.Wait()
		for _, key := range keys {
			effects := w.of(key)
			if len(effects) != 1 {
				s.Errorf("I1, I3: %d effects", len(effects))
				continue
			}
			if a := ask(handlers[0], key); a.Body.String() != answerTo(effects[0]) {
				s.Errorf("I2: %d %s", a.Code, a.Body)
			}
		}
		s.Logf("%d keys", len(keys))
	}
}
