package pgsaga_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// A service in Latin-1 says what PostgreSQL's text can't hold.
const (
	foreign = "Stra\xdfe\x00 unbekannt"
	kept    = "Stra\uFFFDe\uFFFD unbekannt"
)

func sayNo(context.Context, saga.Call) (saga.Outcome, error) {
	return saga.Outcome{Refused: true, Reason: foreign}, nil
}

// TestForeignRefusal has a step and a transaction refused in words that can't be stored: the saga is compensated.
func TestForeignRefusal(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	d := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: testSchema})
	marked := d.Step("second", func(ctx context.Context, _ pgx.Tx, c saga.Call) (saga.Outcome, error) { return sayNo(ctx, c) }, nil)
	plan := func(second saga.Step) func(*saga.Saga) (saga.Plan, error) {
		return func(*saga.Saga) (saga.Plan, error) {
			return saga.Plan{Steps: []saga.Step{d.Step("first", effect, effect), second}}, nil
		}
	}
	p := newProcess(t, pool, saga.Options{Definitions: []saga.Definition{
		{Name: "step", Plan: plan(saga.Step{Name: "second", Do: sayNo})}, {Name: "mark", Plan: plan(marked)},
	}})
	for _, name := range []string{"step", "mark"} {
		s, err := p.Run(testwait.Context(t, patience), saga.New{Name: name})
		if err != nil || s.Status != saga.WasCompensated || s.Reason != kept || s.Steps[1].Reason != kept || !strings.Contains(s.LastError, kept) {
			t.Fatalf("%s: %+v, %v", name, s, err)
		}
		if got := effects(t, pool, "saga = $1", s.ID); !slices.Equal(got, []string{"first", "undo.first"}) {
			t.Errorf("%s: effects: %v", name, got)
		}
	}
	for _, c := range []saga.Call{{Saga: uuid.New(), Step: "second"}, {Saga: uuid.New(), Step: "second", Cancel: foreign}} {
		for range 2 { // The second execution reads the first one's mark.
			if out, err := marked.Do(t.Context(), c); err != nil || out != saga.Refuse(foreign) || out.Reason != kept {
				t.Errorf("%+v, %v", out, err)
			}
		}
	}
}

// stuckSaga starts a saga and waits until it is listed as stuck.
func stuckSaga(t *testing.T, p *process, name string) (stuck *saga.Saga) {
	t.Helper()
	s, err := p.Start(testwait.Context(t, patience), saga.New{Name: name})
	testwait.Must(t, err)
	testwait.Eventually(t, patience, "the saga "+name+" is stuck", func() bool {
		found, err := p.Sagas(t.Context(), saga.Query{Stuck: true, IDs: []uuid.UUID{s.ID}, Limit: 1})
		if err != nil || len(found) == 0 {
			return false
		}
		stuck = found[0]
		return true
	})
	return stuck
}

// TestForeignError lets a step fail with words that can't be stored: the saga is shown as stuck, and an operator ends it.
func TestForeignError(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	d := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: testSchema})
	second := saga.Step{Name: "second", Do: func(_ context.Context, c saga.Call) (saga.Outcome, error) {
		if c.Cancel != "" {
			return saga.Refuse(c.Cancel), nil
		}
		return saga.Outcome{}, errors.New(foreign)
	}}
	p := newProcess(t, pool, saga.Options{Definitions: []saga.Definition{{Name: "fails", Plan: func(*saga.Saga) (saga.Plan, error) {
		return saga.Plan{Steps: []saga.Step{d.Step("first", effect, effect), second}}, nil
	}}}})
	s := stuckSaga(t, p, "fails")
	if s.Steps[1].Error != kept || !strings.HasSuffix(s.LastError, kept) {
		t.Errorf("%+v", s)
	}
	testwait.Must(t, testwait.Err(p.Compensate(t.Context(), s.ID)))
	if s, err := p.Wait(testwait.Context(t, patience), s.ID); err != nil || s.Status != saga.WasCompensated {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestForeignBranchError lets a branch fail with words that can't be stored: the transaction ends at its deadline.
func TestForeignBranchError(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	fail := func(context.Context, pgx.Tx, saga.Call) (saga.Outcome, error) {
		return saga.Outcome{}, errors.New(foreign)
	}
	o := h.options(func(*saga.Saga) []saga.Branch {
		return []saga.Branch{h.parts[0].Branch("here", effect), h.parts[1].Branch("there", fail)}
	})
	o.Deadline = 300 * time.Millisecond
	p := newProcess(t, h.pools[0], o)
	s, err := p.Run(testwait.Context(t, patience), saga.New{Name: "both", Protocol: saga.TwoPhase})
	if err != nil || s.Status != saga.Failed || s.Reason != saga.ReasonDeadline || s.Steps[1].Error != kept {
		t.Errorf("%+v, %v", s, err)
	}
	if left := h.inDoubt(t); len(left) > 0 || len(effects(t, h.pools[0], "true")) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestBadResult lets steps make results that can't be stored as they are: each is the error of its step.
func TestBadResult(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	d := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: testSchema})
	result := func(result string) pgsaga.Transaction {
		return func(ctx context.Context, tx pgx.Tx, c saga.Call) (saga.Outcome, error) {
			_, err := effect(ctx, tx, c)
			return saga.Outcome{Result: result}, err
		}
	}
	steps := map[string]saga.Step{
		"marked NUL":     d.Step("only", result("a\x00"), nil),
		"marked Latin-1": d.Step("only", result("a\xdf"), nil),
		"Latin-1": {Name: "only", Do: func(context.Context, saga.Call) (saga.Outcome, error) {
			return saga.Outcome{Result: "a\xdf"}, nil
		}},
	}
	var o saga.Options
	for name, step := range steps {
		o.Definitions = append(o.Definitions, saga.Definition{Name: name, Plan: func(*saga.Saga) (saga.Plan, error) {
			return saga.Plan{Steps: []saga.Step{step}}, nil
		}})
	}
	p := newProcess(t, pool, o)
	for name := range steps {
		s := stuckSaga(t, p, name)
		if only := s.Steps[0]; only.Status != saga.StepPending || only.Result != "" || !strings.Contains(only.Error, "the result ") {
			t.Errorf("%s: %+v", name, s)
		}
		if got := effects(t, pool, "saga = $1", s.ID); len(got) > 0 {
			t.Errorf("%s: effects: %v", name, got)
		}
	}
}

// TestBadBranchResult is a branch that prepares nothing, since its result can't be stored.
func TestBadBranchResult(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	c := saga.Call{Saga: uuid.New(), Step: "here"}
	nul := func(context.Context, pgx.Tx, saga.Call) (saga.Outcome, error) {
		return saga.Outcome{Result: "a\x00"}, nil
	}
	_, err := h.parts[0].Branch("here", nul).Prepare(t.Context(), c, saga.GID("saga:test", c.Saga, 1, 0))
	if err == nil || !strings.Contains(err.Error(), "the result ") || len(h.inDoubt(t)) > 0 {
		t.Error(err)
	}
}
