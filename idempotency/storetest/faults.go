package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
		handlers := s.twice(idempotency.Options{Wait: wait}, w)
		slots := make(chan struct{}, 8) // keys at a time
		var wg sync.WaitGroup
		for range testwait.Count(10, 1000) {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				effects, own := s.duplicated(handlers, w, uuid.NewString(), 50, wait > 0)
				if len(effects) != 1 || own != 1 {
					s.Errorf("%s: I1: %d effects, and %d answers are not marked as replayed", name, len(effects), own)
				}
			})
		}
		wg.Wait()
	}
}

// twice is the handler in two processes.
func (s *suite) twice(o idempotency.Options, w *world) [2]http.Handler {
	return [2]http.Handler{s.guard(o, w), s.guard(o, w)}
}

// duplicated sends copies of a request at once, each until it is decided, or where they wait for that, once. All must be answered
// with the last of the effects, which it returns with the number of answers that are not marked as replayed.
func (s *suite) duplicated(handlers [2]http.Handler, w *world, key string, copies int, wait bool) (effects []idempotency.Grant, own int) {
	var (
		answers = make([]*httptest.ResponseRecorder, copies)
		wg      sync.WaitGroup
		start   = make(chan struct{})
	)
	for i := range answers {
		wg.Go(func() {
			<-start
			if answers[i] = ask(handlers[i%2], key); !wait && answers[i].Code != http.StatusCreated {
				answers[i] = s.persist(handlers[i%2], key)
			}
		})
	}
	close(start)
	wg.Wait()
	effects = w.of(key)
	for _, a := range answers {
		if a.Code != http.StatusCreated || len(effects) == 0 || a.Body.String() != answerTo(effects[len(effects)-1]) {
			s.Errorf("I2: %d %s, effects %+v", a.Code, a.Body, effects)
		}
		if !replayed(a) {
			own++
		}
	}
	return effects, own
}

// point is where in an execution a process dies.
type point string

// The points, in order.
const (
	beforeBegin point = "before it begins"
	begun       point = "begun, and not executed"
	effect      point = "executed, and not answered"
	kept        point = "answered, and not sent"
)

var errDead = errors.New("this process is dead")

// crashes lets a process die at each point of a request, and calls check after that. To die is to panic out of the request; the
// process's store answers nothing any more and does nothing.
func (s *suite) crashes(o idempotency.Options, w *world, check func(at point, key string)) {
	for _, at := range []point{beforeBegin, begun, effect, kept} {
		for range testwait.Count(3, 100) {
			var dead atomic.Bool
			reach := func(here point) {
				if here == at {
					dead.Store(true)
					panic(errDead)
				}
			}
			dying, key := o, uuid.NewString()
			dying.Lease = short
			dying.Store = &Faulty{Store: s.h.Open(), Around: func(method string, run func() error) error {
				if dead.Load() {
					return idempotency.ErrLost // So that the dead process doesn't try again.
				}
				if method == "Begin" {
					reach(beforeBegin)
				}
				err := run()
				if err == nil {
					reach(map[string]point{"Begin": begun, "Complete": kept}[method])
				}
				return err
			}}
			h := s.guard(dying, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
				w.ServeHTTP(out, r)
				reach(effect)
			}))
			func() {
				defer func() {
					if p := recover(); p != errDead { //nolint:errorlint // As it was thrown.
						s.Errorf("%s: the process did not die, but %v", at, p)
					}
				}()
				_ = ask(h, key)
			}()
			check(at, key)
		}
	}
}

// crashParked: I1 and I3 with handlers that nothing undoes. Where it is not known whether there was an effect, it is not repeated.
// With a Resolve that can look for the effect, there is exactly one, whatever died.
func (s *suite) crashParked() {
	w := newWorld()
	o := idempotency.Options{OnCrash: idempotency.ParkAsUnknown, Wait: time.Second}
	resolving := o
	resolving.Resolve = func(_ context.Context, r *http.Request, g idempotency.Grant) (*idempotency.Response, error) {
		if body, err := io.ReadAll(r.Body); err != nil || string(body) != "x" {
			return nil, fmt.Errorf("asked with %q: %w", body, err)
		}
		effects := w.under(g.ID)
		if len(effects) == 0 {
			return nil, nil //nolint:nilnil // No effect: that is what it says.
		}
		return new(text(http.StatusCreated, answerTo(effects[0]))), nil
	}
	s.crashes(o, w, func(at point, key string) {
		parked := s.guard(o, w)
		known := at == beforeBegin || at == kept
		testwait.Eventually(s, patience, string(at), func() bool {
			a := ask(parked, key)
			return known && a.Code == http.StatusCreated ||
				!known && a.Code == http.StatusConflict && strings.Contains(a.Body.String(), idempotency.CodeOutcomeUnknown)
		})
		if n := len(w.of(key)); n != map[point]int{beforeBegin: 1, begun: 0, effect: 1, kept: 1}[at] {
			s.Errorf("%s: %d effects", at, n)
		}
		if effects, _ := s.duplicated(s.twice(resolving, w), w, key, 6, false); len(effects) != 1 {
			s.Errorf("%s: effects %+v", at, effects)
		}
	})
}

// crashFreed: after the lease the next request executes, under a greater fence, which tells the earlier effect from its own.
func (s *suite) crashFreed() {
	w := newWorld()
	o := idempotency.Options{Wait: time.Second}
	s.crashes(o, w, func(at point, key string) {
		effects, _ := s.duplicated(s.twice(o, w), w, key, 6, false)
		if n := len(effects); n != map[point]int{beforeBegin: 1, begun: 1, effect: 2, kept: 1}[at] || n == 2 && effects[1].Fence <= effects[0].Fence {
			s.Errorf("%s: effects %+v", at, effects)
		}
	})
}

// stopped: a handler that is stopped for longer than its lease learns that, can't keep its answer, and gets the other's.
func (s *suite) stopped() {
	for range testwait.Count(3, 200) {
		w, key := newWorld(), uuid.NewString()
		begun, wake := make(chan struct{}), make(chan struct{})
		unextended := &Faulty{Store: s.h.Open(), Around: func(method string, run func() error) error {
			if method == "Extend" {
				return errDead
			}
			return run()
		}}
		stopped := s.guard(idempotency.Options{Store: unextended, Lease: short}, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
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
		s.Skip("it needs a server of its own, which it may kill")
	}
	w := newWorld()
	// A restart takes less than a lease here, so that nothing is taken over, and is waited for.
	handlers := s.twice(idempotency.Options{StoreTimeout: patience, Wait: patience}, w)
	for range testwait.Count(1, 10) {
		var (
			load sync.WaitGroup
			keys sync.Map
		)
		under, stop := context.WithCancel(s.Context())
		for range 8 {
			load.Go(func() {
				for under.Err() == nil {
					key := uuid.NewString()
					keys.Store(key, nil)
					s.duplicated(handlers, w, key, 3, false) //nolint:contextcheck // It ends when it is answered.
				}
			})
		}
		wait.For(s.Context(), 50*time.Millisecond+rand.N(200*time.Millisecond)) //nolint:gosec // A moment that is no particular one.
		s.h.Restart()
		wait.For(s.Context(), 100*time.Millisecond)
		stop()
		load.Wait()
		keys.Range(func(key, _ any) bool {
			effects, own := s.duplicated(handlers, w, key.(string), 1, false) //nolint:errcheck,forcetypeassert // They are strings.
			if len(effects) != 1 || own != 0 {
				s.Errorf("I1, I3: %d effects", len(effects))
			}
			return true
		})
	}
}
