package postgres

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

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

// TestMultidrawRollsBackAPart rolls an interrupted operation back: its lock key is free, and its draws are kept.
func TestMultidrawRollsBackAPart(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	s := newMultidraws(t, &mortal{Multidraws: NewMultidraws(db), left: 3}, multidraw.Options{})
	o := made(t, s, inRange("part", 20_000, true))
	awaitStatus(t, s, o.ID, multidraw.StatusInterrupted)
	testwait.Must(t, testwait.Err(s.Create(t.Context(), own[multidraw.Op](inRange("part", 1, false)))))
	if held := ask[int64](t, db, `SELECT count(*) FROM multidraws WHERE lock_key = 'part'`); held != 1 {
		t.Fatalf("%d operations under the lock key of an interrupted one", held)
	}
	testwait.Must(t, testwait.Err(change(t, s, o.ID, multidraw.Rollback{})))
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
			testwait.Check(t, err)
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

// hesitant decides to make an operation, and then takes its time until it is open.
type hesitant struct {
	*Multidraws

	once          sync.Once
	reached, open chan struct{}
}

func (h *hesitant) Create(ctx context.Context, id uuid.UUID, lockKey string, keys []idempotency.ID, decide func(*multidraw.Unit)) error {
	return h.Multidraws.Create(ctx, id, lockKey, keys, func(u *multidraw.Unit) {
		decide(u)
		h.once.Do(func() {
			close(h.reached)
			<-h.open
		})
	})
}

// TestMultidrawKeyWhileItsAnswerIsDecided has one process about to make an operation while another one is asked for the same:
// it could make it, draw it all and decide the answer, before the first goes on.
func TestMultidrawKeyWhileItsAnswerIsDecided(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	slow := &hesitant{Multidraws: NewMultidraws(db), reached: make(chan struct{}), open: make(chan struct{})}
	services := []*multidraw.Service{newMultidraws(t, slow, multidraw.Options{}), newMultidraws(t, NewMultidraws(db), multidraw.Options{})}
	answers := make(chan command.Answer, len(services))
	ask1 := func(s *multidraw.Service) {
		a, err := s.Create(t.Context(), keyed[multidraw.Op](inRange("k", 15_000, false), "same", "body"))
		testwait.Check(t, err)
		answers <- a
	}
	go ask1(services[0])
	<-slow.reached
	go ask1(services[1])
	testwait.Eventually(t, patience, "the second waits for the first", func() bool {
		return len(answers) > 0 || ask[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`) == 1
	})
	close(slow.open)
	first, second := <-answers, <-answers
	if first.Status != 201 || !bytes.Equal(first.Body, second.Body) || first.Replayed == second.Replayed {
		t.Errorf("%d %s\n%d %s", first.Status, first.Body, second.Status, second.Body)
	}
	if n := ask[int](t, db, `SELECT count(*) FROM multidraws`); n != 1 {
		t.Errorf("%d operations", n)
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
	testwait.Eventually(t, patience, "the operation is completed", func() bool {
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
	var reconciling sync.WaitGroup
	reconciling.Go(func() { alive.Reconcile(ctx) })
	request.Key.Execution = uuid.New()
	a, err := alive.Create(t.Context(), request)
	if err != nil || !a.Replayed || !bytes.Contains(a.Body, []byte(`"status":"interrupted"`)) {
		t.Errorf("%s, %v", a.Body, err)
	}
	cancel()
	reconciling.Wait()
	again, err := alive.Create(t.Context(), request)
	if err != nil || !bytes.Equal(a.Body, again.Body) {
		t.Errorf("%s, %v", again.Body, err)
	}
}
