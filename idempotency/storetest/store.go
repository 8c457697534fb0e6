package storetest

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

func isLost(err error) bool { return errors.Is(err, idempotency.ErrLost) }

func (s *suite) life() {
	store, other := s.h.Open(), s.h.Open()
	r := request()
	s.phase(store, r.ID, idempotency.Absent)
	g := s.start(store, r, terms(long))
	if e := s.begin(other, again(r), terms(long), idempotency.InFlight); e.Grant != g || e.LeaseLeft <= 0 || e.LeaseLeft > long {
		s.Errorf("in flight: %+v", e)
	}
	s.refused(other, r)
	s.phase(other, r.ID, idempotency.InFlight)
	s.complete(store, g, "made")
	if e := s.begin(other, again(r), terms(long), idempotency.Answered); e.Grant != g || !equal(e.Response, text(201, "made")) {
		s.Errorf("answered: %+v", e)
	}
	s.refused(other, r)
	s.lost(store, g, true)
	s.phase(store, r.ID, idempotency.Answered)

	// What is released is as good as new, for another request, too; and the one before has no say in it.
	r = request()
	g = s.start(store, r, terms(long))
	testwait.Must(s, store.Release(s.ctx(), g))
	s.phase(other, r.ID, idempotency.Absent)
	later := s.start(other, another(r), terms(long))
	if later.Fence <= g.Fence {
		s.Errorf("fence %d after %d", later.Fence, g.Fence)
	}
	s.lost(store, g, false)
	s.complete(other, later, "")
}

func (s *suite) exact() {
	store, other := s.h.Open(), s.h.Open()
	binary := make([]byte, 70_000)
	for i := range binary {
		binary[i] = byte(i * 7)
	}
	for _, answer := range []idempotency.Response{
		{Status: 200},
		{Status: 204, Header: http.Header{"X-Empty": {""}}, Body: []byte{}},
		{Status: 500, Header: http.Header{"Content-Type": {"text/plain"}, "X-Many": {"b", "a", "b"}}, Body: []byte("no")},
		{Status: 599, Header: http.Header{"X-Latin": {"caf\xe9 \xff"}, "x-lower": {"kept as it is"}, "X-Quote": {`"\`}}, Body: binary},
		{Status: 1, Body: []byte("nul \x00 and \xff")},
	} {
		r := request()
		g := s.start(store, r, terms(long))
		for _, tried := range []idempotency.Response{answer, text(200, "another")} {
			if kept, err := store.Complete(s.ctx(), g, tried); err != nil || !equal(kept, answer) {
				s.Fatalf("kept %+v, %v", kept, err)
			}
			if e := s.begin(other, again(r), terms(long), idempotency.Answered); !equal(e.Response, answer) {
				s.Errorf("status %d, header %q, %d bytes; want status %d, header %q, %d bytes", e.Response.Status, e.Response.Header,
					len(e.Response.Body), answer.Status, answer.Header, len(answer.Body))
			}
		}
	}
}

func equal(a, b idempotency.Response) bool {
	return a.Status == b.Status && bytes.Equal(a.Body, b.Body) && maps.EqualFunc(a.Header, b.Header, slices.Equal)
}

// repeated: a caller whose answer was lost asks again, and gets the same one.
func (s *suite) repeated() {
	store := s.h.Open()
	r := request()
	g := s.start(store, r, terms(long))
	if again := s.start(store, r, terms(long)); again != g {
		s.Errorf("granted %+v, then %+v", g, again)
	}
	for range 2 {
		testwait.Must(s, store.Extend(s.ctx(), g, long))
		s.complete(store, g, "made")
		s.complete(store, g, "made")
		if e := s.begin(store, r, terms(long), idempotency.Answered); e.Grant != g {
			s.Errorf("%+v", e)
		}
		r = request()
		g = s.start(store, r, terms(long))
	}
	testwait.Must(s, store.Release(s.ctx(), g))
	s.lost(store, g, false)
}

// takenOver: once the lease has run out another begins, under a greater fence, and the first is refused.
func (s *suite) takenOver() {
	store, other := s.h.Open(), s.h.Open()
	r := request()
	old := s.start(store, r, terms(short))
	var g idempotency.Grant
	testwait.Eventually(s, patience, "the lease runs out", func() bool {
		s.refused(other, r) // Not even then: the first request may have had its effect.
		e, err := other.Begin(s.ctx(), again(r), terms(long))
		testwait.Must(s, err)
		g = e.Grant
		return e.Phase == idempotency.Started
	})
	if g.Fence <= old.Fence {
		s.Errorf("fence %d after %d", g.Fence, old.Fence)
	}
	s.lost(store, old, false)
	s.phase(store, r.ID, idempotency.InFlight)
	s.complete(other, g, "second")
	s.lost(store, old, false)

	// As long as nobody has taken it over, an execution that comes late has the only answer there is.
	r = request()
	g = s.start(store, r, terms(short))
	s.until(other, r.ID, "the lease runs out", func(e idempotency.Entry) bool {
		return e.Phase == idempotency.InFlight && e.LeaseLeft == 0
	})
	if err := store.Extend(s.ctx(), g, long); !isLost(err) {
		s.Errorf("a lease that has run out was extended: %v", err)
	}
	s.complete(store, g, "late")
	s.begin(other, again(r), terms(long), idempotency.Answered)
}

func (s *suite) extended() {
	store := s.h.Open()
	r := request()
	g := s.start(store, r, terms(time.Second))
	if err := store.Extend(s.ctx(), g, long); err != nil {
		s.Skipf("the machine is too busy to extend a lease of 1s: %v", err)
	}
	wait.For(s.ctx(), 1100*time.Millisecond)
	s.begin(store, again(r), terms(long), idempotency.InFlight)
	testwait.Must(s, store.Extend(s.ctx(), g, short))
	testwait.Eventually(s, patience, "the shorter lease runs out", func() bool {
		e, err := store.Begin(s.ctx(), again(r), terms(long))
		return err == nil && e.Phase == idempotency.Started
	})
}

func (s *suite) parked() {
	store, other := s.h.Open(), s.h.Open()
	parking := idempotency.Terms{Lease: short, Retention: long, OnCrash: idempotency.ParkAsUnknown}
	unknown := func() (idempotency.Request, idempotency.Grant) {
		r := request()
		g := s.start(store, r, parking)
		testwait.Eventually(s, patience, "it is unknown", func() bool {
			e, err := other.Begin(s.ctx(), again(r), terms(short))
			if err != nil || e.Phase == idempotency.Started {
				s.Fatalf("%+v, %v", e, err)
			}
			return e.Phase == idempotency.Unknown && e.Grant == g
		})
		return r, g
	}
	r, g := unknown()
	if err := store.Extend(s.ctx(), g, long); !isLost(err) {
		s.Errorf("extended: %v", err)
	}
	// It is resolved by its answer,
	s.complete(other, g, "found")
	if e := s.begin(store, again(r), terms(long), idempotency.Answered); string(e.Response.Body) != "found" {
		s.Errorf("%+v", e)
	}
	// or by the finding that it had no effect, and then its execution is out.
	r, g = unknown()
	testwait.Must(s, other.Release(s.ctx(), g))
	s.start(other, again(r), terms(long))
	s.lost(store, g, false)
}

func (s *suite) badTerms() {
	store, r := s.h.Open(), request()
	for _, t := range []idempotency.Terms{
		{},
		{Lease: long},
		{Retention: long},
		{Lease: -long, Retention: long},
		{Lease: long, Retention: -long},
		{Lease: time.Microsecond - 1, Retention: long},
	} {
		if e, err := store.Begin(s.ctx(), r, t); !errors.Is(err, idempotency.ErrBadOptions) || e.Phase != idempotency.Absent {
			s.Errorf("under %+v: %+v, %v", t, e, err)
		}
	}
	s.phase(store, r.ID, idempotency.Absent)
}

func (s *suite) retention() {
	store := s.h.Open()
	// Complete alone sets the end: Redis forgets a key that is not completed within its lease and retention.
	brief := idempotency.Terms{Lease: long, Retention: short}
	for i := range 3 {
		r := request()
		g := s.start(store, r, brief)
		s.complete(store, g, "old")
		s.until(store, r.ID, "the answer's retention is over", func(e idempotency.Entry) bool { return e.Phase == idempotency.Absent })
		if i == 0 { // Then the key is new, for other requests, too.
			if later := s.start(store, another(r), brief); later.Fence <= g.Fence {
				s.Errorf("fence %d after %d", later.Fence, g.Fence)
			}
			s.lost(store, g, false)
		}
	}
	kept, unresolved := request(), request()
	s.complete(store, s.start(store, kept, terms(long)), "kept")
	brief.Lease, brief.OnCrash = short, idempotency.ParkAsUnknown
	s.start(store, unresolved, brief)
	s.until(store, unresolved.ID, "it is unknown", func(e idempotency.Entry) bool { return e.Phase == idempotency.Unknown })
	wait.For(s.ctx(), 2*short) // Its retention would be over by now.
	total := 0
	for {
		n, err := store.Sweep(s.ctx(), 2)
		if err != nil || n > 2 {
			s.Fatalf("swept %d: %v", n, err)
		}
		if total += n; n == 0 {
			break
		}
	}
	if total == 1 { // A store that expires by itself has nothing to sweep.
		s.Errorf("swept %d", total)
	}
	s.phase(store, kept.ID, idempotency.Answered)
	s.phase(store, unresolved.ID, idempotency.Unknown)
}

// races: of many that begin at once one is granted, with a new key and with one whose lease has run out.
func (s *suite) races() {
	stores := [2]idempotency.Store{s.h.Open(), s.h.Open()}
	for round := range testwait.Count(10, 300) {
		r, last := request(), idempotency.Grant{}
		for range 2 {
			var (
				wg    sync.WaitGroup
				won   = make(chan idempotency.Grant, 16)
				start = make(chan struct{})
			)
			for i := range cap(won) {
				wg.Go(func() {
					<-start
					e, err := stores[i%2].Begin(s.Context(), again(r), terms(long))
					testwait.Check(s, err)
					if e.Phase == idempotency.Started {
						won <- e.Grant
					}
				})
			}
			close(start)
			wg.Wait()
			if n := len(won); n != 1 {
				s.Fatalf("round %d: %d of %d racers were granted", round, n, cap(won))
			}
			g := <-won
			if g.Fence <= last.Fence || g.Execution == uuid.Nil {
				s.Fatalf("%+v after %+v", g, last)
			}
			last = g
			testwait.Must(s, stores[0].Extend(s.ctx(), g, time.Microsecond))
			wait.For(s.ctx(), 2*time.Millisecond)
		}
	}
}
