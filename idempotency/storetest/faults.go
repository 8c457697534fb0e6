package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
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

func (w *world) happen(g idempotency.Grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.effects[g.ID] = append(w.effects[g.ID], g)
}

func (w *world) of(id idempotency.ID) []idempotency.Grant {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]idempotency.Grant(nil), w.effects[id]...)
}

// answerTo is what an effect answers: another text each time it happens.
func answerTo(g idempotency.Grant) idempotency.Response {
	return text(http.StatusCreated, fmt.Sprintf("by %s under %d", g.Execution, g.Fence))
}

// ServeHTTP has its effect and says so.
func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	g, _ := idempotency.FromContext(r.Context())
	w.happen(g)
	a := answerTo(g)
	out.WriteHeader(a.Status)
	_, _ = out.Write(a.Body)
}

// idOf is the id of a key that is sent by POST to /a.
func idOf(key string) idempotency.ID {
	return idempotency.NewID("", http.MethodPost, "example.com/a", key)
}

// persist sends a request until it is decided, and returns the answer.
func (s *suite) persist(h http.Handler, key string) *httptest.ResponseRecorder {
	deadline := time.Now().Add(patience)
	for {
		w := ask(h, http.MethodPost, "/a", key, "x")
		if w.Code == http.StatusCreated {
			return w
		}
		if time.Now().After(deadline) {
			s.Errorf("key %s: still %d %s", key, w.Code, w.Body)
			return w
		}
		wait.For(s.Context(), 5*time.Millisecond)
	}
}

// duplicates: 50 requests at once for each of many keys, at two processes. I1 and I2.
func (s *suite) duplicates() {
	const copies = 50
	w := newWorld()
	for name, wait := range map[string]time.Duration{"waiting": patience, "refused": 0} {
		var (
			handlers [2]http.Handler
			slots    = make(chan struct{}, 8) // keys at a time
			wg       sync.WaitGroup
		)
		for i := range handlers {
			handlers[i] = s.guard(idempotency.Options{Wait: wait}).Wrap(w)
		}
		for range testwait.Count(10, 1000) {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				s.oneKey(w, handlers, uuid.NewString(), copies, wait > 0)
			})
		}
		wg.Wait()
		if s.Failed() {
			s.Fatalf("the duplicates were %s", name)
		}
	}
}

// oneKey sends the copies of one request and compares their answers.
func (s *suite) oneKey(w *world, handlers [2]http.Handler, key string, copies int, waiting bool) {
	var (
		answers = make([]*httptest.ResponseRecorder, copies)
		wg      sync.WaitGroup
		start   = make(chan struct{})
	)
	for i := range answers {
		wg.Go(func() {
			<-start
			if answers[i] = ask(handlers[i%2], http.MethodPost, "/a", key, "x"); !waiting && answers[i].Code == http.StatusConflict {
				answers[i] = s.persist(handlers[i%2], key)
			}
		})
	}
	close(start)
	wg.Wait()
	effects := w.of(idOf(key))
	if len(effects) != 1 {
		s.Errorf("I1: %d effects", len(effects))
		return
	}
	own := 0
	for _, a := range answers {
		if a.Code != http.StatusCreated || a.Body.String() != string(answerTo(effects[0]).Body) {
			s.Errorf("I2: %d %s", a.Code, a.Body)
		}
		if a.Header().Get(idempotency.ReplayedHeader) == "" {
			own++
		}
	}
	if own != 1 {
		s.Errorf("%d answers are not marked as replayed", own)
	}
}

// crash sends a request to a process that dies at a point of it. It panics out of the process as a connection that breaks.
func (s *suite) crash(o idempotency.Options, w *world, at point, key string) {
	m := newMortal(s.h.Open(), at)
	o.Store = m
	h := s.guard(o).Wrap(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.ServeHTTP(out, r)
		if at == effect {
			m.die()
		}
	}))
	defer func() {
		if p := recover(); p != errDead { //nolint:errorlint // As it was thrown.
			s.Errorf("%s: the process did not die, but %v", at, p)
		}
	}()
	_ = ask(h, http.MethodPost, "/a", key, "x")
}

// crashParked: I1 with handlers that nothing undoes. Where it is not known whether the effect was had, it is not repeated.
func (s *suite) crashParked() {
	w := newWorld()
	o := idempotency.Options{OnCrash: idempotency.ParkAsUnknown, Lease: short}
	for _, at := range points() {
		for range testwait.Count(3, 100) {
			key := uuid.NewString()
			s.crash(o, w, at, key)
			live := o
			live.Lease = long
			h := s.guard(live).Wrap(w)
			known := at == beforeBegin || at == kept
			var last *httptest.ResponseRecorder
			s.eventually(string(at), func() bool {
				last = ask(h, http.MethodPost, "/a", key, "x")
				return last.Code == http.StatusCreated || last.Code == http.StatusConflict && !s.in(h, key)
			})
			if want := map[bool]int{true: 201, false: 409}[known]; last.Code != want {
				s.Errorf("%s: %d %s", at, last.Code, last.Body)
			}
			if n := len(w.of(idOf(key))); n > 1 || known && n != 1 {
				s.Errorf("%s: %d effects", at, n)
			}
		}
	}
}

// in reports whether a key is in flight.
func (s *suite) in(h http.Handler, key string) bool {
	w := ask(h, http.MethodPost, "/a", key, "x")
	return w.Code == http.StatusConflict && bytesContain(w, idempotency.CodeInFlight)
}

// crashResolved: I3. Whoever can ask whether there was an effect has exactly one, whatever died.
func (s *suite) crashResolved() {
	w := newWorld()
	o := idempotency.Options{
		OnCrash: idempotency.ParkAsUnknown, Lease: short, Wait: time.Second,
		Resolve: func(_ context.Context, r *http.Request, g idempotency.Grant) (*idempotency.Response, error) {
			if body, err := io.ReadAll(r.Body); err != nil || string(body) != "x" {
				return nil, fmt.Errorf("asked with %q: %w", body, err)
			}
			if len(w.of(g.ID)) == 0 {
				return nil, nil //nolint:nilnil // No effect: that is what it says.
			}
			a := answerTo(w.of(g.ID)[0])
			return &a, nil
		},
	}
	s.crashes(o, w, func(at point, effects []idempotency.Grant) {
		if len(effects) != 1 {
			s.Errorf("%s: %d effects", at, len(effects))
		}
	})
}

// crashFreed: after the lease the next request executes, under a greater fence, which tells the earlier effect from its own.
func (s *suite) crashFreed() {
	w := newWorld()
	s.crashes(idempotency.Options{Lease: short, Wait: time.Second}, w, func(at point, effects []idempotency.Grant) {
		switch {
		case at == effect && len(effects) == 2 && effects[1].Fence > effects[0].Fence:
		case at != effect && len(effects) == 1:
		default:
			s.Errorf("%s: effects %+v", at, effects)
		}
	})
}

// crashes lets a process die at each point, and duplicates arrive at two others.
func (s *suite) crashes(o idempotency.Options, w *world, check func(point, []idempotency.Grant)) {
	for _, at := range points() {
		for range testwait.Count(3, 100) {
			key := uuid.NewString()
			s.crash(o, w, at, key)
			live := o
			live.Lease = long
			handlers := [2]http.Handler{s.guard(live).Wrap(w), s.guard(live).Wrap(w)}
			var wg sync.WaitGroup
			answers := make([]*httptest.ResponseRecorder, 6)
			for i := range answers {
				wg.Go(func() { answers[i] = s.persist(handlers[i%2], key) })
			}
			wg.Wait()
			effects := w.of(idOf(key))
			check(at, effects)
			for _, a := range answers {
				if len(effects) == 0 || a.Body.String() != string(answerTo(effects[len(effects)-1]).Body) {
					s.Errorf("%s: I2: %s, effects %+v", at, a.Body, effects)
				}
			}
		}
	}
}

// stopped: a handler that is stopped for longer than its lease learns that, can't keep its answer, and gets the other's.
func (s *suite) stopped() {
	for range testwait.Count(3, 200) {
		w := newWorld()
		m := newMortal(s.h.Open(), "")
		m.cut.Store(true)
		key := uuid.NewString()
		begun, wake := make(chan struct{}), make(chan struct{})
		stopped := s.guard(idempotency.Options{Store: m, Lease: short}).Wrap(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			close(begun)
			<-wake
			select {
			case <-r.Context().Done():
			case <-time.After(patience):
			}
			if cause := context.Cause(r.Context()); !errors.Is(cause, idempotency.ErrLost) {
				s.Errorf("its context ends with %v", cause)
			}
			w.ServeHTTP(out, r)
		}))
		var (
			wg   sync.WaitGroup
			late *httptest.ResponseRecorder
		)
		wg.Go(func() { late = ask(stopped, http.MethodPost, "/a", key, "x") })
		<-begun
		answer := s.persist(s.guard(idempotency.Options{Wait: patience}).Wrap(w), key)
		close(wake)
		wg.Wait()
		effects := w.of(idOf(key))
		if len(effects) != 2 || effects[1].Fence >= effects[0].Fence {
			s.Fatalf("effects %+v: the second should be the late one's, under the lesser fence", effects)
		}
		if late.Code != http.StatusCreated || late.Body.String() != answer.Body.String() || late.Header().Get(idempotency.ReplayedHeader) != "true" {
			s.Errorf("the late one is told %d %s %v, the other %s", late.Code, late.Body, late.Header(), answer.Body)
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
	o := idempotency.Options{Lease: long, StoreTimeout: patience, Wait: patience}
	handlers := [2]http.Handler{s.guard(o).Wrap(w), s.guard(o).Wrap(w)}
	for range testwait.Count(1, 10) {
		var (
			load sync.WaitGroup
			keys []string
			mu   sync.Mutex
			stop = make(chan struct{})
		)
		for i := range 8 {
			load.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					key := uuid.NewString()
					mu.Lock()
					keys = append(keys, key)
					mu.Unlock()
					var wg sync.WaitGroup
					for range 3 {
						wg.Go(func() { s.persist(handlers[i%2], key) })
					}
					wg.Wait()
				}
			})
		}
		wait.For(s.Context(), 50*time.Millisecond+rand.N(200*time.Millisecond)) //nolint:gosec // A moment that is no particular one.
		s.h.Restart()
		wait.For(s.Context(), 100*time.Millisecond)
		close(stop)
		load.Wait()
		for _, key := range keys {
			effects := w.of(idOf(key))
			if len(effects) != 1 {
				s.Errorf("I1, I3: %d effects", len(effects))
				continue
			}
			if a := ask(handlers[0], http.MethodPost, "/a", key, "x"); a.Body.String() != string(answerTo(effects[0]).Body) {
				s.Errorf("I2: %d %s", a.Code, a.Body)
			}
		}
		s.Logf("%d keys", len(keys))
	}
}
