package pgsaga_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// TestBrokenFunctions has a definition, a step or a compensation that panics or ends its goroutine, over a saga that has begun: the
// process lives, the saga is shown as stuck, and ends when the function is right again.
func TestBrokenFunctions(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	d := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: testSchema})
	for how, breaks := range map[string]struct {
		f    func()
		says string
	}{
		"panics":  {func() { panic(foreign) }, "panic: " + kept},
		"Goexits": {runtime.Goexit, "runtime.Goexit was called, as FailNow of package testing does"},
	} {
		for _, where := range []string{"plan", "do", "undo"} {
			t.Run(where+" "+how, func(t *testing.T) {
				t.Parallel()
				var repaired, began atomic.Bool
				at := func(place string) {
					if place == where && !repaired.Load() {
						breaks.f()
					}
				}
				p := newProcess(t, pool, saga.Options{Definitions: []saga.Definition{{Name: where + how, Plan: func(*saga.Saga) (saga.Plan, error) {
					if began.Swap(true) {
						at("plan")
					}
					first, second := d.Step("first", effect, effect), saga.Step{Name: "second", Do: func(context.Context, saga.Call) (saga.Outcome, error) {
						at("do")
						return saga.Refuse("no"), nil
					}}
					undo := first.Undo
					first.Undo = func(ctx context.Context, c saga.Call) (saga.Outcome, error) {
						at("undo")
						return undo(ctx, c)
					}
					return saga.Plan{Steps: []saga.Step{first, second}}, nil
				}}}})
				s := stuckSaga(t, p, where+how)
				if !strings.HasSuffix(s.LastError, breaks.says) {
					t.Errorf("%+v", s)
				}
				repaired.Store(true)
				if s, err := p.Wait(testwait.Context(t, patience), s.ID); err != nil || s.Status != saga.WasCompensated {
					t.Errorf("%+v, %v", s, err)
				}
			})
		}
	}
}

// TestBadStarts asks for sagas that can't be carried out as they are asked for. None is made.
func TestBadStarts(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	d := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: testSchema})
	define := func(name string, plan saga.Plan) saga.Definition {
		return saga.Definition{Name: name, Plan: func(*saga.Saga) (saga.Plan, error) { return plan, nil }}
	}
	branch := d.Branch("only", effect)
	branch.Participant = nil
	p := newProcess(t, pool, saga.Options{Definitions: []saga.Definition{
		define("good", saga.Plan{Steps: []saga.Step{d.Step("only", effect, nil)}}),
		define("no Do", saga.Plan{Steps: []saga.Step{d.Step("first", effect, nil), {Name: "second", Undo: d.Step("x", effect, nil).Do}}}),
		define("no Prepare", saga.Plan{Branches: []saga.Branch{{Name: "only", Participant: d}}}),
		define("no Participant", saga.Plan{Branches: []saga.Branch{branch}}),
	}})
	for want, n := range map[string]saga.New{
		`step "second" has no Do`:                    {Name: "no Do"},
		`branch "only" lacks Prepare`:                {Name: "no Prepare", Protocol: saga.TwoPhase},
		`branch "only" lacks Prepare or Participant`: {Name: "no Participant", Protocol: saga.TwoPhase},
		`the deadline is negative: -1ns`:             {Name: "good", Deadline: -1},
		`the deadline is negative: -1h0m0s`:          {Name: "good", Deadline: -time.Hour},
	} {
		if s, err := p.Start(t.Context(), n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v; want %s", s, err, want)
		}
	}
	if made, err := p.Sagas(t.Context(), saga.Query{Limit: 1}); err != nil || len(made) > 0 {
		t.Errorf("made: %v, %v", made, err)
	}
}
