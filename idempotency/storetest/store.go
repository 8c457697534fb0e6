package storetest

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

func (s *suite) life() {
	store, other := s.h.Open(), s.h.Open()
	r := request()
	s.phase(store, r.ID, idempotency.Absent)
	g := s.begin(store, r, terms(long), idempotency.Started).Grant
	if e := s.begin(other, again(r), terms(long), idempotency.InFlight); e.Grant != g || e.LeaseLeft <= 0 || e.LeaseLeft > long {
		s.Errorf("in flight: %+v", e)
	}
	reused := again(r)
	reused.Fingerprint = idempotency.NewFingerprint([]byte("other"))
	if _, err := other.Begin(s.ctx(), reused, terms(long)); !errors.Is(err, idempotency.ErrKeyReused) {
		s.Errorf("another request under a key in flight: %v", err)
	}
	s.phase(other, r.ID, idempotency.InFlight)
	if kept, err := store.Complete(s.ctx(), g, text(201, "made")); err != nil || string(kept.Body) != "made" {
		s.Fatalf("complete: %+v, %v", kept, err)
	}
	if e := s.begin(other, again(r), terms(long), idempotency.Answered); e.Grant != g || e.Response.Status != 201 || string(e.Response.Body) != "made" {
		s.Errorf("answered: %+v", e)
	}
	if _, err := other.Begin(s.ctx(), reused, terms(long)); !errors.Is(err, idempotency.ErrKeyReused) {
		s.Errorf("another request under an answered key: %v", err)
	}
	for what, err := range map[string]error{
		"extend": store.Extend(s.ctx(), g, long), "release": store.Release(s.ctx(), g), "park": store.Park(s.ctx(), g),
	} {
		if !errors.Is(err, idempotency.ErrLost) {
			s.Errorf("%s after the answer: %v", what, err)
		}
	}
	s.phase(store, r.ID, idempotency.Answered)

	// What is released is as good as new, for another request, too; and the one before has no say in it.
	r = request()
	g = s.begin(store, r, terms(long), idempotency.Started).Grant
	s.must(store.Release(s.ctx(), g))
	s.phase(other, r.ID, idempotency.Absent)
	next := again(r)
	next.Fingerprint = reused.Fingerprint
	later := s.begin(other, next, terms(long), idempotency.Started).Grant
	if later.Fence <= g.Fence {
		s.Errorf("fence %d after %d", later.Fence, g.Fence)
	}
	s.lost(store, g)
	if _, err := other.Complete(s.ctx(), later, text(200, "")); err != nil {
		s.Error(err)
	}
}

// lost fails unless an execution is refused everything.
func (s *suite) lost(store idempotency.Store, g idempotency.Grant) {
	s.Helper()
	_, complete := store.Complete(s.ctx(), g, text(200, "late"))
	for what, err := range map[string]error{
		"complete": complete, "extend": store.Extend(s.ctx(), g, long), "release": store.Release(s.ctx(), g), "park": store.Park(s.ctx(), g),
	} {
		if !errors.Is(err, idempotency.ErrLost) {
			s.Errorf("%s of a lost execution: %v", what, err)
		}
	}
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
		g := s.begin(store, r, terms(long), idempotency.Started).Grant
		kept, err := store.Complete(s.ctx(), g, answer)
		if err != nil || !equal(kept, answer) {
			s.Fatalf("kept %+v, %v", kept, err)
		}
		for range 2 {
			if e := s.begin(other, again(r), terms(long), idempotency.Answered); !equal(e.Response, answer) {
				s.Errorf("status %d, header %q, %d bytes; want status %d, header %q, %d bytes", e.Response.Status, e.Response.Header,
					len(e.Response.Body), answer.Status, answer.Header, len(answer.Body))
			}
		}
		if kept, err := store.Complete(s.ctx(), g, text(200, "another")); err != nil || !equal(kept, answer) {
			s.Errorf("a second answer: %+v, %v", kept, err)
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
	g := s.begin(store, r, terms(long), idempotency.Started).Grant
	if e := s.begin(store, r, terms(long), idempotency.Started); e.Grant != g {
		s.Errorf("granted %+v, then %+v", g, e.Grant)
	}
	for range 2 {
		if err := store.Extend(s.ctx(), g, long); err != nil {
			s.Error(err)
		}
		if kept, err := store.Complete(s.ctx(), g, text(201, "made")); err != nil || string(kept.Body) != "made" {
			s.Errorf("complete: %+v, %v", kept, err)
		}
		if e := s.begin(store, r, terms(long), idempotency.Answered); e.Grant != g {
			s.Errorf("%+v", e)
		}
		r = request()
		g = s.begin(store, r, terms(long), idempotency.Started).Grant
	}
	if err := store.Release(s.ctx(), g); err != nil {
		s.Error(err)
	}
	s.lost(store, g)
}

// takenOver: once the lease has run out another begins, under a greater fence, and the first is refused.
func (s *suite) takenOver() {
	store, other := s.h.Open(), s.h.Open()
	r := request()
	old := s.begin(store, r, terms(short), idempotency.Started).Grant
	reused := again(r)
	reused.Fingerprint = idempotency.NewFingerprint([]byte("other"))
	var g idempotency.Grant
	s.eventually("the lease runs out", func() bool {
		// Not even then is it free for another request: the first one may have had its effect.
		if _, err := other.Begin(s.ctx(), reused, terms(long)); !errors.Is(err, idempotency.ErrKeyReused) {
			s.Fatalf("another request: %v", err)
		}
		e, err := other.Begin(s.ctx(), again(r), terms(long))
		s.must(err)
		g = e.Grant
		return e.Phase == idempotency.Started
	})
	if g.Fence <= old.Fence {
		s.Errorf("fence %d after %d", g.Fence, old.Fence)
	}
	s.lost(store, old)
	s.phase(store, r.ID, idempotency.InFlight)
	if _, err := other.Complete(s.ctx(), g, text(200, "second")); err != nil {
		s.Fatal(err)
	}
	s.lost(store, old)

	// As long as nobody has taken it over, an execution that comes late has the only answer there is.
	r = request()
	g = s.begin(store, r, terms(short), idempotency.Started).Grant
	s.eventually("the lease runs out", func() bool {
		e, err := other.Look(s.ctx(), r.ID)
		return err == nil && e.Phase == idempotency.InFlight && e.LeaseLeft == 0
	})
	if err := store.Extend(s.ctx(), g, long); !errors.Is(err, idempotency.ErrLost) {
		s.Errorf("a lease that has run out was extended: %v", err)
	}
	if _, err := store.Complete(s.ctx(), g, text(200, "late")); err != nil {
		s.Errorf("complete: %v", err)
	}
	s.begin(other, again(r), terms(long), idempotency.Answered)
}

func (s *suite) extended() {
	store := s.h.Open()
	r := request()
	g := s.begin(store, r, terms(time.Second), idempotency.Started).Grant
	if err := store.Extend(s.ctx(), g, long); err != nil {
		s.Skipf("the machine is too busy to extend a lease of 1s: %v", err)
	}
	wait.For(s.ctx(), 1100*time.Millisecond)
	s.begin(store, again(r), terms(long), idempotency.InFlight)
	s.must(store.Extend(s.ctx(), g, short))
	s.eventually("the shorter lease runs out", func() bool {
		e, err := store.Begin(s.ctx(), again(r), terms(long))
		return err == nil && e.Phase == idempotency.Started
	})
}

func (s *suite) parked() {
	store, other := s.h.Open(), s.h.Open()
	unknown := func() (idempotency.Request, idempotency.Grant) {
		r := request()
		g := s.begin(store, r, parking(short), idempotency.Started).Grant
		s.eventually("it is unknown", func() bool {
			e, err := other.Begin(s.ctx(), again(r), terms(short))
			if err != nil || e.Phase == idempotency.Started {
				s.Fatalf("%+v, %v", e, err)
			}
			return e.Phase == idempotency.Unknown && e.Grant == g
		})
		return r, g
	}
	r, g := unknown()
	if err := store.Extend(s.ctx(), g, long); !errors.Is(err, idempotency.ErrLost) {
		s.Errorf("extended: %v", err)
	}
	// It is resolved by its answer,
	if _, err := other.Complete(s.ctx(), g, text(201, "found")); err != nil {
		s.Fatal(err)
	}
	if e := s.begin(store, again(r), terms(long), idempotency.Answered); string(e.Response.Body) != "found" {
		s.Errorf("%+v", e)
	}
	// or by the finding that it had no effect, and then its execution is out.
	r, g = unknown()
	s.must(other.Release(s.ctx(), g))
	s.begin(other, again(r), terms(long), idempotency.Started)
	s.lost(store, g)

	// Giving up needs no lease to run out, and parks whatever the terms were.
	r = request()
	g = s.begin(store, r, terms(long), idempotency.Started).Grant
	s.must(store.Park(s.ctx(), g))
	s.begin(other, again(r), terms(long), idempotency.Unknown)
}

func (s *suite) retention() {
	store := s.h.Open()
	// Complete alone sets the end: Redis forgets a key that is not completed within its lease and retention.
	brief := idempotency.Terms{Lease: long, Retention: short}
	var ids []idempotency.ID
	for range 3 {
		r := request()
		g := s.begin(store, r, brief, idempotency.Started).Grant
		if _, err := store.Complete(s.ctx(), g, text(200, "old")); err != nil {
			s.Fatal(err)
		}
		ids = append(ids, r.ID)
		s.eventually("the answer's retention is over", func() bool {
			e, err := store.Look(s.ctx(), r.ID)
			return err == nil && e.Phase == idempotency.Absent
		})
		if len(ids) == 1 { // Then the key is new, for other requests, too.
			other := again(r)
			other.Fingerprint = idempotency.NewFingerprint([]byte("other"))
			later := s.begin(store, other, brief, idempotency.Started).Grant
			if later.Fence <= g.Fence {
				s.Errorf("fence %d after %d", later.Fence, g.Fence)
			}
			s.lost(store, g)
		}
	}
	kept, unresolved := request(), request()
	g := s.begin(store, kept, terms(long), idempotency.Started).Grant
	if _, err := store.Complete(s.ctx(), g, text(200, "kept")); err != nil {
		s.Fatal(err)
	}
	brief.Lease, brief.OnCrash = short, idempotency.ParkAsUnknown
	s.begin(store, unresolved, brief, idempotency.Started)
	s.eventually("it is unknown", func() bool {
		e, err := store.Look(s.ctx(), unresolved.ID)
		return err == nil && e.Phase == idempotency.Unknown
	})
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
	if total != 0 && total < 2 { // A store that expires by itself has nothing to sweep.
		s.Errorf("swept %d", total)
	}
	s.phase(store, kept.ID, idempotency.Answered)
	s.phase(store, unresolved.ID, idempotency.Unknown)
}

// races: of many that begin at once one is granted, with a new key and with one whose lease has run out.
func (s *suite) races() {
	const racers = 16
	stores := [2]idempotency.Store{s.h.Open(), s.h.Open()}
	for round := range testwait.Count(10, 300) {
		r := request()
		race := func() idempotency.Grant {
			var (
				wg      sync.WaitGroup
				started atomic.Int32
				won     atomic.Pointer[idempotency.Grant]
				start   = make(chan struct{})
			)
			for i := range racers {
				wg.Go(func() {
					<-start
					e, err := stores[i%2].Begin(s.Context(), again(r), idempotency.Terms{Lease: long, Retention: long})
					switch {
					case err != nil:
						s.Error(err)
					case e.Phase == idempotency.Started:
						started.Add(1)
						won.Store(&e.Grant)
					}
				})
			}
			close(start)
			wg.Wait()
			if n := started.Load(); n != 1 {
				s.Fatalf("round %d: %d of %d racers were granted", round, n, racers)
			}
			return *won.Load()
		}
		g := race()
		s.must(stores[0].Extend(s.ctx(), g, time.Microsecond))
		wait.For(s.ctx(), 2*time.Millisecond)
		if later := race(); later.Fence <= g.Fence || later.Execution == uuid.Nil {
			s.Fatalf("%+v after %+v", later, g)
		}
	}
}
