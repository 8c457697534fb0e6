package pgsaga_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// scale gives the size of a test: few for every change, many when FAIRLEAD_TORTURE is set.
func scale(few, many int) int {
	if os.Getenv("FAIRLEAD_TORTURE") != "" {
		return many
	}
	return few
}

var errFlaky = errors.New("the network was away")

// itinerary is the input of the sagas of these tests: which of their steps is refused, -1: none.
type itinerary struct {
	Steps  int `json:"steps"`
	Refuse int `json:"refuse"`
}

// flaky makes a definition whose steps fail now and then: before their effect, after it, and by panicking.
func flaky(d *pgsaga.Database, rng func(n int) int) saga.Definition {
	stumble := func(f func(context.Context, saga.Call) (saga.Outcome, error)) func(context.Context, saga.Call) (saga.Outcome, error) {
		return func(ctx context.Context, c saga.Call) (saga.Outcome, error) {
			switch rng(12) {
			case 0:
				return saga.Outcome{}, errFlaky
			case 1:
				panic("a bug in a step")
			}
			out, err := f(ctx, c)
			if rng(12) == 0 {
				return saga.Outcome{}, errFlaky // It happened, and the answer was lost.
			}
			return out, err
		}
	}
	return saga.Definition{Name: "flaky", Plan: func(s *saga.Saga) (saga.Plan, error) {
		var (
			in itinerary
			p  saga.Plan
		)
		if err := json.Unmarshal(s.Input, &in); err != nil {
			return p, err
		}
		for i := range in.Steps {
			do := effect
			if i == in.Refuse {
				do = func(ctx context.Context, tx pgx.Tx, c saga.Call) (saga.Outcome, error) {
					if _, err := effect(ctx, tx, c); err != nil {
						return saga.Outcome{}, err
					}
					return saga.Refuse("no"), nil // What it wrote must not stay.
				}
			}
			step := d.Step(fmt.Sprintf("s%d", i), do, effect)
			step.Do, step.Undo = stumble(step.Do), stumble(step.Undo)
			p.Steps = append(p.Steps, step)
		}
		return p, nil
	}}
}

// TestEveryStepOnce runs sagas on several processes, which die at each place, and compares what has happened with what the
// log says (S1).
func TestEveryStepOnce(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	d := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: testSchema})
	seed := rand.Uint64()
	source, mu := rand.New(rand.NewPCG(seed, 1)), sync.Mutex{}
	rng := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return source.IntN(n)
	}
	var deaths atomic.Int64
	boot := func(place saga.Place) *process {
		var p *process
		var ready sync.WaitGroup
		ready.Add(1)
		var left atomic.Int64
		left.Store(int64(1 + rng(5)))
		p = newProcess(t, pool, saga.Options{Definitions: []saga.Definition{flaky(d, rng)}, Hit: func(at saga.Place, _ int) {
			if at != place || left.Add(-1) != 0 {
				return
			}
			ready.Wait()
			p.die() // Nobody keeps its leases any more; what else it runs goes on for a while, as after a partition.
			deaths.Add(1)
			if at != saga.AfterIntent { // That one is the caller's goroutine.
				runtime.Goexit()
			}
		}})
		ready.Done()
		return p
	}
	ids := map[uuid.UUID]itinerary{}
	for round := range scale(1, 10) {
		for _, place := range []saga.Place{saga.AfterIntent, saga.AfterStep, saga.AfterUndo} {
			p := boot(place)
			for n := range 15 {
				in := itinerary{Steps: 1 + rng(5)}
				if in.Refuse = rng(in.Steps + 1); place == saga.AfterUndo || n%5 == 4 {
					in.Steps, in.Refuse = in.Steps+1, in.Steps // The last one, so that there is something to undo.
				}
				raw, err := json.Marshal(in)
				if err != nil {
					t.Fatal(err)
				}
				s, err := p.Start(testwait.Context(t, patience), saga.New{Name: "flaky", Input: raw})
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				ids[s.ID] = in
			}
		}
		survivor := boot(-1)
		for id := range ids {
			if _, err := survivor.Wait(testwait.Context(t, patience), id); err != nil {
				t.Fatalf("seed %d: wait for %s: %v", seed, id, err)
			}
		}
	}
	if deaths.Load() == 0 {
		t.Error("nobody died")
	}
	for id, in := range ids {
		checkSteps(t, pool, id, in)
	}
	if t.Failed() {
		t.Logf("seed %d", seed)
	}
	t.Logf("%d sagas, %d deaths", len(ids), deaths.Load())
}

// checkSteps compares the end of a saga with its effects.
func checkSteps(t *testing.T, pool *pgxpool.Pool, id uuid.UUID, in itinerary) {
	t.Helper()
	s, err := pgsaga.NewLog(pool, pgsaga.LogOptions{Schema: testSchema}).Saga(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	want, status := []string{}, saga.Completed
	for i := range min(in.Steps, in.Refuse) {
		want = append(want, fmt.Sprintf("s%d", i))
	}
	if in.Refuse < in.Steps {
		status = saga.Failed
		for _, step := range slices.Backward(slices.Clone(want)) {
			want, status = append(want, "undo."+step), saga.WasCompensated
		}
	}
	if got := effects(t, pool, "saga = $1", id); !slices.Equal(got, want) || s.Status != status {
		t.Errorf("%s: %s with %v, want %s with %v", id, s.Status, got, status, want)
	}
}

// TestStuckCompensation lets a compensation fail more than ten times: it is tried again with growing pauses, shown as
// stuck, and finished by an operator when the cause is gone.
func TestStuckCompensation(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	d := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: testSchema})
	var (
		broken atomic.Bool
		tries  atomic.Int64
	)
	broken.Store(true)
	refuse := func(context.Context, pgx.Tx, saga.Call) (saga.Outcome, error) { return saga.Refuse("no"), nil }
	p := newProcess(t, pool, saga.Options{MaxPause: 50 * time.Millisecond, Definitions: []saga.Definition{{Name: "stuck", Plan: func(*saga.Saga) (saga.Plan, error) {
		first := d.Step("first", effect, effect)
		undo := first.Undo
		first.Undo = func(ctx context.Context, c saga.Call) (saga.Outcome, error) {
			tries.Add(1)
			if broken.Load() {
				return saga.Outcome{}, errFlaky
			}
			return undo(ctx, c)
		}
		return saga.Plan{Steps: []saga.Step{first, d.Step("second", refuse, nil)}}, nil
	}}}})
	s, err := p.Start(testwait.Context(t, patience), saga.New{Name: "stuck"})
	if err != nil {
		t.Fatal(err)
	}
	var stuck []*saga.Saga
	testwait.Eventually(t, patience, "a saga that is stuck", func() bool {
		stuck, err = p.Sagas(t.Context(), saga.Query{Name: "stuck", Stuck: true, Limit: 10})
		return err != nil || len(stuck) > 0
	})
	if err != nil || stuck[0].ID != s.ID || !stuck[0].Stuck() || stuck[0].Attempts < 10 || tries.Load() < 10 || !strings.Contains(stuck[0].LastError, errFlaky.Error()) {
		t.Fatalf("%+v, %v, %d tries", stuck, err, tries.Load())
	}
	if got := effects(t, pool, "saga = $1", s.ID); !slices.Equal(got, []string{"first"}) {
		t.Errorf("effects: %v", got)
	}
	broken.Store(false)
	if again, err := p.Retry(t.Context(), s.ID); err != nil || again.Attempts != 0 {
		// It may have got on by itself in between.
		if !errors.Is(err, saga.ErrBadTransition) {
			t.Errorf("%+v, %v", again, err)
		}
	}
	ended, err := p.Wait(testwait.Context(t, patience), s.ID)
	if err != nil || ended.Status != saga.WasCompensated || ended.Reason != "no" {
		t.Errorf("%+v, %v", ended, err)
	}
	if got := effects(t, pool, "saga = $1", s.ID); !slices.Equal(got, []string{"first", "undo.first"}) {
		t.Errorf("effects: %v", got)
	}
	if _, err := p.Retry(t.Context(), s.ID); !errors.Is(err, saga.ErrBadTransition) {
		t.Errorf("retry of an ended one: %v", err)
	}
	if _, err := p.Compensate(t.Context(), uuid.New()); !isNotFound(err) {
		t.Errorf("compensate nothing: %v", err)
	}
}

func isNotFound(err error) bool {
	_, ok := errors.AsType[*saga.NotFoundError](err)
	return ok
}

// TestEndsBeforeItsTime ends sagas whose second step never succeeds: by their deadline, and by an operator.
func TestEndsBeforeItsTime(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	d := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: testSchema})
	p := newProcess(t, pool, saga.Options{Definitions: []saga.Definition{{Name: "never", Plan: func(*saga.Saga) (saga.Plan, error) {
		second := d.Step("second", effect, effect)
		do := second.Do
		second.Do = func(ctx context.Context, c saga.Call) (saga.Outcome, error) {
			if c.Cancel == "" {
				return saga.Outcome{}, errFlaky
			}
			return do(ctx, c)
		}
		return saga.Plan{Steps: []saga.Step{d.Step("first", effect, effect), second}}, nil
	}}}})
	late, err := p.Run(testwait.Context(t, patience), saga.New{Name: "never", Deadline: 300 * time.Millisecond})
	if err != nil || late.Status != saga.WasCompensated || late.Reason != saga.ReasonDeadline {
		t.Fatalf("%+v, %v", late, err)
	}
	s, err := p.Start(testwait.Context(t, patience), saga.New{Name: "never"})
	if err != nil {
		t.Fatal(err)
	}
	testwait.Eventually(t, patience, "its first step", func() bool { return len(effects(t, pool, "saga = $1", s.ID)) > 0 })
	if s, err = p.Compensate(t.Context(), s.ID); err != nil || !s.Cancelled {
		t.Fatalf("%+v, %v", s, err)
	}
	s, err = p.Wait(testwait.Context(t, patience), s.ID)
	if err != nil || s.Status != saga.WasCompensated || s.Reason != saga.ReasonCancelled {
		t.Fatalf("%+v, %v", s, err)
	}
	if got := effects(t, pool, "saga = $1", s.ID); !slices.Equal(got, []string{"first", "undo.first"}) {
		t.Errorf("effects: %v", got)
	}
}

// TestStartAgain repeats requests under the same id, at once and later.
func TestStartAgain(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	d := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: testSchema})
	definition := saga.Definition{Name: "one", Plan: func(*saga.Saga) (saga.Plan, error) {
		return saga.Plan{Steps: []saga.Step{d.Step("only", effect, nil)}}, nil
	}}
	a := newProcess(t, pool, saga.Options{Definitions: []saga.Definition{definition}})
	b := newProcess(t, pool, saga.Options{Definitions: []saga.Definition{definition}})
	id := uuid.New()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			s, err := []*process{a, b}[i%2].Run(testwait.Context(t, patience), saga.New{ID: id, Name: "one", Input: json.RawMessage(`{"n": 1}`)})
			if err != nil || s.Status != saga.Completed || s.ID != id {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
	group.Wait()
	if got := effects(t, pool, "saga = $1", id); len(got) != 1 {
		t.Errorf("effects: %v", got)
	}
	for _, n := range []saga.New{
		{ID: id, Name: "one", Input: json.RawMessage(`{"n": 2}`)}, {ID: id, Name: "one", Protocol: saga.TwoPhase, Input: json.RawMessage(`{"n": 1}`)},
	} {
		if _, err := a.Start(t.Context(), n); !errors.Is(err, saga.ErrOtherSaga) {
			t.Errorf("%+v: %v", n, err)
		}
	}
	if _, err := a.Start(t.Context(), saga.New{Name: "two"}); !errors.Is(err, saga.ErrUnknownDefinition) {
		t.Errorf("no definition: %v", err)
	}
	for _, steps := range [][]string{{}, {"a", "a"}, {"undo.a"}, {"a b"}, {""}} {
		if _, err := a.Start(t.Context(), saga.New{Name: "one", Steps: steps}); err == nil {
			t.Errorf("steps %q were taken", steps)
		}
	}
	if _, err := a.Start(t.Context(), saga.New{Name: "one", Input: json.RawMessage("{")}); err == nil {
		t.Error("an input that is no JSON was taken")
	}
}

// TestOthersDefinitions keeps a process from taking sagas that it could not run.
func TestOthersDefinitions(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	log := pgsaga.NewLog(pool, pgsaga.LogOptions{Schema: testSchema})
	id := uuid.New()
	err := log.Create(t.Context(), id, nil, func(u *saga.Unit) {
		u.Made = &saga.Saga{
			ID: id, Name: "theirs", Protocol: saga.Compensated, Input: []byte("null"), Status: saga.Pending, Owner: uuid.New(), Term: 1,
			Version: 1, LeaseExpiresAt: u.Now, NextAt: u.Now, CreatedAt: u.Now, UpdatedAt: u.Now,
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for names, want := range map[string]int{"ours": 0, "theirs": 1} {
		if got, err := log.Claim(t.Context(), uuid.New(), []string{names}, time.Minute, 10); err != nil || len(got) != want {
			t.Errorf("%s: %v, %v", names, got, err)
		}
	}
}

// TestLostLease takes a saga away from a process that is in the middle of a step: the step's context ends, the other's
// execution finds out what became of it, and the first can write nothing.
func TestLostLease(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	entered, cause := make(chan struct{}, 100), make(chan error, 100) // It may be taken back, and lost again.
	p := newProcess(t, pool, saga.Options{Definitions: []saga.Definition{{Name: "slow", Plan: func(*saga.Saga) (saga.Plan, error) {
		return saga.Plan{Steps: []saga.Step{{Name: "slow", Do: func(ctx context.Context, _ saga.Call) (saga.Outcome, error) {
			entered <- struct{}{}
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return saga.Outcome{}, ctx.Err()
		}}}}, nil
	}}}})
	s, err := p.Start(testwait.Context(t, patience), saga.New{Name: "slow"})
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	// As if it had stood still for longer than its lease.
	if _, err := pool.Exec(t.Context(), `UPDATE "some sagas".sagas SET owner = gen_random_uuid(), term = 2, version = version + 1 WHERE id = $1`, s.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-cause:
		if !errors.Is(err, saga.ErrLeaseLost) {
			t.Errorf("the cause: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the step was not told")
	}
	s.Status = saga.Completed
	if err := pgsaga.NewLog(pool, pgsaga.LogOptions{Schema: testSchema}).Save(t.Context(), s, nil); !isFenced(err) {
		t.Errorf("it wrote in an old term: %v", err)
	}
	if _, err := pool.Exec(t.Context(), `DELETE FROM "some sagas".sagas`); err != nil {
		t.Fatal(err)
	}
}

func isFenced(err error) bool {
	fenced, ok := errors.AsType[*saga.FencedError](err)
	return ok && fenced.Term > 1
}
