package postgres

import (
	"bytes"
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

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/lottery/multidraw"
)

// errDied is what a [mortal] run dies of.
var errDied = errors.New("the process died")

// mortal is a store whose checkpoints fail from some on, as those of a process that died do: whatever was committed stays.
type mortal struct {
	*Multidraws

	mu   sync.Mutex
	left int  // checkpoints until death; negative: none
	lose bool // the last checkpoint is committed, but its answer is lost
	dead bool
}

func (m *mortal) Checkpoint(ctx context.Context, c *multidraw.Checkpoint) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDied
	}
	if m.left == 0 {
		m.dead = true
		if !m.lose {
			return errDied
		}
		return errors.Join(m.Multidraws.Checkpoint(ctx, c), errDied)
	}
	m.left--
	return m.Multidraws.Checkpoint(ctx, c)
}

// Update, Renew and Expire are not to be heard of from the dead.
func (m *mortal) Renew(context.Context, uuid.UUID, []uuid.UUID, time.Duration) error { return nil }

func newMultidraws(t *testing.T, store multidraw.Store, o multidraw.Options) *multidraw.Service {
	t.Helper()
	s := multidraw.NewService(store, o)
	t.Cleanup(func() { closing(t, s.Close) })
	return s
}

func inRange(key string, count int64, async bool) multidraw.Create {
	return multidraw.Create{LockKey: key, Count: count, Async: async, Spec: multidraw.Spec{Range: &multidraw.Range{Min: 1, Max: 1_000_000}}}
}

// made makes an operation that must come to be.
func made(t *testing.T, s *multidraw.Service, op multidraw.Create) *multidraw.Operation {
	t.Helper()
	a, err := s.Create(t.Context(), own[multidraw.Op](op))
	return operationOf(t, a, errors.Join(err, a.Err))
}

func operationOf(t *testing.T, a command.Answer, err error) *multidraw.Operation {
	t.Helper()
	o, ok := a.Result.(*multidraw.Operation)
	if err != nil || !ok {
		t.Fatalf("%T, %v", a.Result, err)
	}
	return o
}

func change(t *testing.T, s *multidraw.Service, id uuid.UUID, op multidraw.Op) (*multidraw.Operation, error) {
	t.Helper()
	a, err := s.Execute(t.Context(), id, own(op))
	if err = errors.Join(err, a.Err); err != nil {
		return nil, err
	}
	return operationOf(t, a, nil), nil
}

func operation(t *testing.T, s *multidraw.Service, id uuid.UUID) *multidraw.Operation {
	t.Helper()
	o, err := s.Operation(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func awaitStatus(t *testing.T, s *multidraw.Service, id uuid.UUID, want multidraw.Status) *multidraw.Operation {
	t.Helper()
	eventually(t, "the operation is "+string(want), func() bool { return operation(t, s, id).Status == want })
	return operation(t, s, id)
}

// allSaved reads an operation page by page.
func allSaved(t *testing.T, s *multidraw.Service, o *multidraw.Operation) []byte {
	t.Helper()
	var out []byte
	for from := int64(0); from < o.Completed; from += 777 {
		page, err := s.Saved(t.Context(), o, from, from+777)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, page...)
	}
	return out
}

func drawSeedOf(t *testing.T, db *DB, o *multidraw.Operation) fairdraw.Seed {
	t.Helper()
	return fairdraw.Seed(ask[[]byte](t, db, `SELECT seed FROM multidraw_seeds WHERE multidraw = $1`, o.ID))
}

// checkSaved compares an operation's saved draws, digest and proof with what its seed gives without a break.
func checkSaved(t *testing.T, db *DB, s *multidraw.Service, o *multidraw.Operation) {
	t.Helper()
	seed := drawSeedOf(t, db, o)
	d, err := multidraw.New(seed, o.ID.String(), o.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if want := d.Append(nil, 0, int(o.Completed)); !bytes.Equal(allSaved(t, s, o), want) {
		t.Errorf("%s: the %d saved draws are not those of an unbroken run", o.ID, o.Completed)
	}
	if o.CompletedAt == nil {
		return
	}
	proof, err := multidraw.NewProof(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(proof.Verify(t.Context()), proof.VerifyCommitment(seed.Commitment())); err != nil {
		t.Error(err)
	}
}

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
			eventually(t, "the run ends", func() bool {
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
			if _, err := change(t, newMultidraws(t, store, multidraw.Options{}), o.ID, multidraw.Resume{}); err != nil {
				t.Fatal(err)
			}
			resumed++
		}
	}
}

// TestMultidrawIsInterrupted leaves an operation without a process, and looks how long it takes to be known.
func TestMultidrawIsInterrupted(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	// A death that cannot even say so: the context of everything that the dead process sends has ended.
	store := &silent{mortal{Multidraws: NewMultidraws(db), left: 2}}
	o := made(t, newMultidraws(t, store, multidraw.Options{}), inRange("lost", 20_000, true))
	eventually(t, "the process dies", func() bool { store.mu.Lock(); defer store.mu.Unlock(); return store.dead })
	died := time.Now()
	alive := newMultidraws(t, NewMultidraws(db), multidraw.Options{})
	if status := operation(t, alive, o.ID).Status; status != multidraw.StatusRunning {
		t.Fatalf("%s at once", status)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var tending sync.WaitGroup
	tending.Go(func() { alive.Tend(ctx) })
	lost := awaitStatus(t, alive, o.ID, multidraw.StatusInterrupted)
	if took := time.Since(died); took > 10*time.Second || took < multidraw.LeaseTTL/2 {
		t.Errorf("interrupted after %s", took)
	}
	cancel()
	tending.Wait()
	if lost.Completed != 2000 {
		t.Errorf("%d draws", lost.Completed)
	}
	checkSaved(t, db, alive, lost)
	if _, err := change(t, alive, o.ID, multidraw.Resume{}); err != nil {
		t.Fatal(err)
	}
	checkSaved(t, db, alive, awaitStatus(t, alive, o.ID, multidraw.StatusCompleted))
}

type silent struct{ mortal }

func (s *silent) Update(context.Context, uuid.UUID, []idempotency.ID, func(*multidraw.Unit)) error {
	return errDied
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
	eventually(t, "the lease has expired", func() bool {
		_, err = change(t, other, o.ID, multidraw.Resume{})
		return !errors.Is(err, multidraw.ErrBadTransition)
	})
	if err != nil {
		t.Fatal(err)
	}
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
type gated struct {
	*Multidraws

	open    chan struct{}
	reached chan struct{}

	mu  sync.Mutex
	err error
}

func (g *gated) Checkpoint(ctx context.Context, c *multidraw.Checkpoint) error {
	select {
	case g.reached <- struct{}{}:
	default:
	}
	<-g.open
	err := g.Multidraws.Checkpoint(ctx, c)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
	return err
}

func (g *gated) last() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// TestMultidrawLockKey asks for one lock key many times at once.
func TestMultidrawLockKey(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	gate := &gated{Multidraws: NewMultidraws(db), open: make(chan struct{}), reached: make(chan struct{}, 100)}
	services := []*multidraw.Service{newMultidraws(t, gate, multidraw.Options{}), newMultidraws(t, gate, multidraw.Options{})}
	var (
		mu   sync.Mutex
		won  []uuid.UUID
		held []error
		all  sync.WaitGroup
	)
	for i := range 12 {
		all.Go(func() {
			a, err := services[i%2].Create(t.Context(), own[multidraw.Op](inRange("k", 20_000, true)))
			mu.Lock()
			defer mu.Unlock()
			if o, ok := a.Result.(*multidraw.Operation); ok && err == nil && a.Err == nil {
				won = append(won, o.ID)
				return
			}
			held = append(held, errors.Join(err, a.Err))
		})
	}
	all.Wait()
	if len(won) != 1 || len(held) != 11 {
		t.Fatalf("%d have the lock key, %d not: %v", len(won), len(held), held)
	}
	for _, err := range held {
		if e, ok := errors.AsType[*multidraw.LockHeldError](err); !ok || e.Holder != won[0] || !errors.Is(err, multidraw.ErrLockHeld) {
			t.Errorf("%v", err)
		}
	}
	s := services[0]
	// While it runs it can't be changed; another lock key is free.
	for _, op := range []multidraw.Op{multidraw.Resume{}, multidraw.Rollback{}} {
		if _, err := change(t, s, won[0], op); !errors.Is(err, multidraw.ErrBadTransition) {
			t.Errorf("%T: %v", op, err)
		}
	}
	made(t, s, inRange("other", 5, false))
	close(gate.open)
	awaitStatus(t, s, won[0], multidraw.StatusCompleted)
	// Completed, it has given the lock key back; rolled back, it is so for good.
	again := made(t, s, inRange("k", 5, false))
	if again.Status != multidraw.StatusCompleted {
		t.Errorf("%+v", again)
	}
	back, err := change(t, s, won[0], multidraw.Rollback{})
	if err != nil || back.Status != multidraw.StatusRolledBack || back.RolledBackAt == nil {
		t.Fatalf("%+v, %v", back, err)
	}
	checkSaved(t, db, s, operation(t, s, won[0]))
	for _, op := range []multidraw.Op{multidraw.Resume{}, multidraw.Rollback{}} {
		if _, err := change(t, s, won[0], op); !errors.Is(err, multidraw.ErrBadTransition) {
			t.Errorf("%T: %v", op, err)
		}
	}
	if _, err := change(t, s, uuid.New(), multidraw.Rollback{}); !isAbsent(err) {
		t.Errorf("%v", err)
	}
}

func isAbsent(err error) bool {
	_, ok := errors.AsType[*multidraw.NotFoundError](err)
	return ok
}

// TestMultidrawRollsBackAPart gives the lock key of an interrupted operation back, and keeps what it had drawn.
func TestMultidrawRollsBackAPart(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	s := newMultidraws(t, &mortal{Multidraws: NewMultidraws(db), left: 3}, multidraw.Options{})
	o := made(t, s, inRange("part", 20_000, true))
	awaitStatus(t, s, o.ID, multidraw.StatusInterrupted)
	if _, err := s.Create(t.Context(), own[multidraw.Op](inRange("part", 1, false))); err != nil {
		t.Fatal(err)
	}
	if held := ask[int64](t, db, `SELECT count(*) FROM multidraws WHERE lock_key = 'part'`); held != 1 {
		t.Fatalf("%d operations under the lock key of an interrupted one", held)
	}
	if _, err := change(t, s, o.ID, multidraw.Rollback{}); err != nil {
		t.Fatal(err)
	}
	back := operation(t, s, o.ID)
	if back.Status != multidraw.StatusRolledBack || back.Completed != 3000 || back.Seed != nil {
		t.Errorf("%+v", back)
	}
	checkSaved(t, db, s, back)
	made(t, s, inRange("part", 1, false))
	if _, err := multidraw.NewProof(back); !errors.Is(err, multidraw.ErrNotCompleted) {
		t.Error(err)
	}
}

// TestMultidrawKeys repeats a request while it is executed, by two processes, and after; all are told the same.
func TestMultidrawKeys(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	gate := &gated{Multidraws: NewMultidraws(db), open: make(chan struct{}), reached: make(chan struct{}, 100)}
	services := []*multidraw.Service{newMultidraws(t, gate, multidraw.Options{}), newMultidraws(t, gate, multidraw.Options{})}
	var (
		all     sync.WaitGroup
		mu      sync.Mutex
		answers []command.Answer
	)
	for i := range 8 {
		all.Go(func() {
			a, err := services[i%2].Create(t.Context(), keyed[multidraw.Op](inRange("k", 15_000, false), "same", "body"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			answers = append(answers, a)
		})
	}
	<-gate.reached
	if a, err := services[0].Create(t.Context(), keyed[multidraw.Op](inRange("k", 15_000, false), "same", "other")); err != nil || a.Status != 409 ||
		!bytes.Contains(a.Body, []byte("already used")) {
		t.Errorf("the key with another body: %d %s, %v", a.Status, a.Body, err)
	}
	close(gate.open)
	all.Wait()
	executed := 0
	for _, a := range answers {
		if a.Status != 201 || !bytes.Equal(a.Body, answers[0].Body) || !bytes.Contains(a.Body, []byte(`"completed":15000`)) {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		if !a.Replayed {
			executed++
		}
	}
	if n := ask[int64](t, db, `SELECT count(*) FROM multidraws`); n != 1 || executed > 1 {
		t.Errorf("%d operations; %d were told that they executed", n, executed)
	}
	late, err := services[1].Create(t.Context(), keyed[multidraw.Op](inRange("k", 15_000, false), "same", "body"))
	if err != nil || !late.Replayed || !bytes.Equal(late.Body, answers[0].Body) {
		t.Errorf("%+v, %v", late, err)
	}
	if n := ask[int64](t, db, `SELECT count(*) FROM multidraws WHERE key IS NOT NULL`); n != 0 {
		t.Errorf("%d answers are not decided", n)
	}
}

// TestMultidrawPatience answers a caller before the last draw, and lets the operation go on.
func TestMultidrawPatience(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	gate := &gated{Multidraws: NewMultidraws(db), open: make(chan struct{}), reached: make(chan struct{}, 100)}
	s := newMultidraws(t, gate, multidraw.Options{SyncWait: 100 * time.Millisecond})
	a, err := s.Create(t.Context(), keyed[multidraw.Op](inRange("k", 15_000, false), "key", "body"))
	if err != nil || !bytes.Contains(a.Body, []byte(`"status":"running"`)) {
		t.Fatalf("%s, %v", a.Body, err)
	}
	close(gate.open)
	eventually(t, "the operation is completed", func() bool {
		return ask[string](t, db, `SELECT status FROM multidraws`) == "completed"
	})
	again, err := s.Create(t.Context(), keyed[multidraw.Op](inRange("k", 15_000, false), "key", "body"))
	if err != nil || !again.Replayed || !bytes.Equal(again.Body, a.Body) {
		t.Errorf("%s, %v", again.Body, err)
	}
}

// TestMultidrawAnswerAfterACrash settles the answer of a request whose process died, as what the operation then is.
func TestMultidrawAnswerAfterACrash(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	store := &silent{mortal{Multidraws: NewMultidraws(db), left: 2}}
	dying := newMultidraws(t, store, multidraw.Options{LeaseTTL: 200 * time.Millisecond})
	request := keyed[multidraw.Op](inRange("k", 15_000, false), "key", "body")
	if _, err := dying.Create(t.Context(), request); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	alive := newMultidraws(t, NewMultidraws(db), multidraw.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var tending sync.WaitGroup
	tending.Go(func() { alive.Tend(ctx) })
	request.Key.Execution = uuid.New()
	a, err := alive.Create(t.Context(), request)
	if err != nil || !a.Replayed || !bytes.Contains(a.Body, []byte(`"status":"interrupted"`)) {
		t.Errorf("%s, %v", a.Body, err)
	}
	cancel()
	tending.Wait()
	again, err := alive.Create(t.Context(), request)
	if err != nil || !bytes.Equal(a.Body, again.Body) {
		t.Errorf("%s, %v", again.Body, err)
	}
}

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

// BenchmarkSavedDraws draws and saves with a checkpoint each so many draws, on a server whose commits are durable.
func BenchmarkSavedDraws(b *testing.B) {
	for _, every := range []int{1_000, 5_000, 20_000} {
		b.Run(fmt.Sprint(every), func(b *testing.B) {
			db, err := Open(b.Context(), Options{URL: durable(b)})
			if err != nil {
				b.Fatal(err)
			}
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
	if _, err := Migrate(b.Context(), url); err != nil {
		b.Fatal(err)
	}
	return url
}
