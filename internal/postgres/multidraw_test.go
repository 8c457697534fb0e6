package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// TestMultidrawResumes kills the run at random checkpoints, with and without the last one committed, and lets another process
// resume it each time.
func TestMultidrawResumes(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	reader := newMultidraws(t, NewMultidraws(db), multidraw.Options{})
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for _, spec := range []multidraw.Spec{
		{Range: &multidraw.Range{Min: math.MinInt64, Max: math.MaxInt64}},
		{Prizes: []multidraw.Prize{{ID: "a", Name: "A", Weight: 1}, {ID: "b", Name: "B", Weight: 9, Value: -5}}},
	} {
		store := &mortal{Multidraws: NewMultidraws(db), left: rng.IntN(5)}
		o := made(t, newMultidraws(t, store, multidraw.Options{}), multidraw.Create{LockKey: "resume", Count: 40_300, Spec: spec, Async: true})
		resumed := 0
		for {
			testwait.Eventually(t, patience, "the run ends", func() bool {
				return operation(t, newMultidraws(t, store, multidraw.Options{}), o.ID).Status != multidraw.StatusRunning
			})
			s := newMultidraws(t, store, multidraw.Options{})
			now := operation(t, s, o.ID)
			if now.Status == multidraw.StatusCompleted {
				if resumed < 2 || now.Completed != now.Total || now.Checkpoints != 41 || now.Term != int64(resumed)+1 {
					t.Errorf("resumed %d times: %+v", resumed, now)
				}
				checkSaved(t, db, reader, now)
				break
			}
			if now.Seed != nil {
				t.Fatal("the seed is shown before all is drawn")
			}
			store = &mortal{Multidraws: NewMultidraws(db), left: 1 + rng.IntN(12), lose: rng.IntN(2) == 0}
			testwait.Must(t, testwait.Err(change(t, newMultidraws(t, store, multidraw.Options{}), o.ID, multidraw.Resume{})))
			resumed++
		}
	}
}

// TestMultidrawIsInterrupted leaves an operation without a process, and looks how long it takes to be known.
func TestMultidrawIsInterrupted(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	type death struct {
		of uuid.UUID
		at time.Time
	}
	var deaths []death
	for i := range testpromise.Tries {
		// A death that cannot even say so: the context of everything that the dead process sends has ended.
		store := &silent{mortal{Multidraws: NewMultidraws(db), left: 2}}
		o := made(t, newMultidraws(t, store, multidraw.Options{}), inRange(fmt.Sprint("lost-", i), 20_000, true))
		testwait.Eventually(t, patience, "the process dies", func() bool { store.mu.Lock(); defer store.mu.Unlock(); return store.dead })
		deaths = append(deaths, death{o.ID, time.Now()})
	}
	alive := newMultidraws(t, NewMultidraws(db), multidraw.Options{})
	last := deaths[len(deaths)-1]
	if status := operation(t, alive, last.of).Status; status != multidraw.StatusRunning {
		t.Fatalf("%s at once", status)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var reconciling sync.WaitGroup
	reconciling.Go(func() { alive.Reconcile(ctx) })
	testpromise.CheckEach(t, []string{"interrupted"}, func(seen func(string, time.Duration)) {
		for _, d := range deaths {
			awaitStatus(t, alive, d.of, multidraw.StatusInterrupted)
			seen("interrupted", time.Since(d.at))
		}
	})
	if took := time.Since(last.at); took < multidraw.LeaseTTL/2 {
		t.Errorf("interrupted after %s", took)
	}
	cancel()
	reconciling.Wait()
	for _, d := range deaths {
		lost := operation(t, alive, d.of)
		if lost.Completed != 2000 {
			t.Errorf("%d draws", lost.Completed)
		}
		checkSaved(t, db, alive, lost)
		testwait.Must(t, testwait.Err(change(t, alive, d.of, multidraw.Resume{})))
		checkSaved(t, db, alive, awaitStatus(t, alive, d.of, multidraw.StatusCompleted))
	}
}

// TestMultidrawIsFenced lets two processes believe that they run one operation.
func TestMultidrawIsFenced(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	store := NewMultidraws(db)
	first := &gated{Multidraws: store, open: make(chan struct{}), reached: make(chan struct{}, 100)}
	slow := newMultidraws(t, first, multidraw.Options{LeaseTTL: 50 * time.Millisecond})
	o := made(t, slow, inRange("two", 30_000, true))
	<-first.reached // It stands before its first checkpoint, and its lease expires.
	other := newMultidraws(t, store, multidraw.Options{})
	var err error
	testwait.Eventually(t, patience, "the lease has expired", func() bool {
		_, err = change(t, other, o.ID, multidraw.Resume{})
		return !errors.Is(err, multidraw.ErrBadTransition)
	})
	testwait.Must(t, err)
	close(first.open)
	done := awaitStatus(t, other, o.ID, multidraw.StatusCompleted)
	if done.Term != 2 {
		t.Errorf("term %d", done.Term)
	}
	checkSaved(t, db, other, done)
	closing(t, slow.Close)
	if err := first.last(); !errors.Is(err, multidraw.ErrFenced) {
		t.Errorf("the first process was told %v", err)
	}
}

// gated stops checkpoints until it is opened.

// TestMultidrawCorrupt refuses to resume what has been tampered with, and changes nothing.
func TestMultidrawCorrupt(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	s := newMultidraws(t, &mortal{Multidraws: NewMultidraws(db), left: 2}, multidraw.Options{})
	o := made(t, s, inRange("k", 20_000, true))
	awaitStatus(t, s, o.ID, multidraw.StatusInterrupted)
	for _, c := range []struct {
		set  string
		want error
	}{
		{`UPDATE multidraws SET high = high + 1`, multidraw.ErrOtherParameters},
		{`UPDATE multidraws SET total = total + 1`, multidraw.ErrOtherParameters},
		{`UPDATE multidraws SET commitment = sha256('')`, multidraw.ErrOtherParameters},
		{`UPDATE multidraws SET low = NULL, high = NULL, prizes = '{'`, multidraw.ErrCorrupt},
		{`UPDATE multidraws SET low = NULL, high = NULL, prizes = '[]'`, multidraw.ErrCorrupt},
		{`UPDATE multidraw_seeds SET seed = sha256('')`, multidraw.ErrOtherParameters},
		{`DELETE FROM multidraw_seeds`, multidraw.ErrCorrupt},
	} {
		before := ask[string](t, db, `SELECT m::text || s::text FROM multidraws m, multidraw_seeds s`)
		exec(t, db, `CREATE TABLE kept_row AS SELECT low, high, total, commitment, prizes FROM multidraws`)
		exec(t, db, `CREATE TABLE kept_seed AS SELECT * FROM multidraw_seeds`)
		exec(t, db, c.set)
		if _, err := change(t, s, o.ID, multidraw.Resume{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.set, err)
		}
		exec(t, db, `UPDATE multidraws m SET (low, high, total, commitment, prizes) = (SELECT * FROM kept_row)`)
		exec(t, db, `DELETE FROM multidraw_seeds`)
		exec(t, db, `INSERT INTO multidraw_seeds SELECT * FROM kept_seed`)
		exec(t, db, `DROP TABLE kept_row, kept_seed`)
		if after := ask[string](t, db, `SELECT m::text || s::text FROM multidraws m, multidraw_seeds s`); after != before {
			t.Fatalf("%s changed\n%s to\n%s", c.set, before, after)
		}
	}
}

// TestMultidrawEvents reads the progress of an operation as the live stream does.
func TestMultidrawEvents(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	var mu sync.Mutex
	var told []int64
	s := newMultidraws(t, NewMultidraws(db), multidraw.Options{Committed: func(_ uuid.UUID, n int64) { mu.Lock(); defer mu.Unlock(); told = append(told, n) }})
	o := awaitStatus(t, s, made(t, s, inRange("k", 12_345, true)).ID, multidraw.StatusCompleted)
	log := NewEvents(db, EventViews{})
	events, err := log.Events(t.Context(), multidraw.Topic(o.ID), 0, 100)
	if err != nil || len(events) != 13 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	for i, e := range events {
		want := fmt.Sprintf(`{"completed_count":%d,"total_count":12345}`, min((i+1)*1000, 12_345))
		if e.Seq != int64(i)+1 || e.Type != "progress" || string(e.Data) != want {
			t.Errorf("%d: %+v %s", i, e, e.Data)
		}
	}
	rest, err := log.Events(t.Context(), multidraw.Topic(o.ID), 11, 1)
	if err != nil || len(rest) != 1 || rest[0].Seq != 12 {
		t.Errorf("%+v, %v", rest, err)
	}
	heads, err := log.Heads(t.Context(), []string{multidraw.Topic(o.ID), multidraw.Topic(uuid.New())})
	if err != nil || len(heads) != 1 || heads[multidraw.Topic(o.ID)] != 13 {
		t.Errorf("%v, %v", heads, err)
	}
	closing(t, s.Close)
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 13 || !slices.IsSorted(told) {
		t.Errorf("told of %v", told)
	}
}

// BenchmarkSavedDraws measures drawing with durable checkpoints, by the number of draws between two of them.
func BenchmarkSavedDraws(b *testing.B) {
	for _, every := range []int{1_000, 5_000, 20_000} {
		b.Run(fmt.Sprint(every), func(b *testing.B) {
			db, err := Open(b.Context(), Options{URL: durable(b)})
			testwait.Must(b, err)
			defer db.Close()
			s := multidraw.NewService(NewMultidraws(db), multidraw.Options{})
			defer func() { _ = s.Close(context.Background()) }()
			const count = 200_000
			for i := 0; b.Loop(); i++ {
				op := inRange(fmt.Sprint(i), count, false)
				op.Every = every
				a, err := s.Create(b.Context(), own[multidraw.Op](op))
				if o, ok := a.Result.(*multidraw.Operation); err != nil || a.Err != nil || !ok || o.Status != multidraw.StatusCompleted {
					b.Fatal(err, a.Err)
				}
			}
			b.ReportMetric(float64(count)*float64(b.N)/b.Elapsed().Seconds(), "draws/s")
		})
	}
}

// durable returns the URL of a migrated database on a server of its own that really waits for its disk.
func durable(b *testing.B) string {
	b.Helper()
	url := pgtest.Server(b).URL()
	testwait.Must(b, testwait.Err(Migrate(b.Context(), url)))
	return url
}
