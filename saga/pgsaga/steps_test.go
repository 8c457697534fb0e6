package pgsaga_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

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
	testwait.Must(t, err)
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
	for deadline := 300 * time.Millisecond; ; deadline *= 2 {
		late, err := p.Run(testwait.Context(t, patience), saga.New{Name: "never", Deadline: deadline})
		if err != nil || late.Reason != saga.ReasonDeadline {
			t.Fatalf("%+v, %v", late, err)
		}
		if late.Status == saga.WasCompensated {
			break
		}
		// On a slow machine the time may be over before the first step, and there is nothing to compensate then.
		if got := effects(t, pool, "saga = $1", late.ID); len(got) > 0 || late.Status != saga.Failed || deadline > patience {
			t.Fatalf("%+v, with %v", late, got)
		}
	}
	s, err := p.Start(testwait.Context(t, patience), saga.New{Name: "never"})
	testwait.Must(t, err)
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

// TestStartRefuses tries to start what could not be run.
func TestStartRefuses(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	d := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: testSchema})
	a := newProcess(t, pool, saga.Options{Definitions: []saga.Definition{{Name: "one", Plan: func(*saga.Saga) (saga.Plan, error) {
		return saga.Plan{Steps: []saga.Step{d.Step("only", effect, nil)}}, nil
	}}}})
	for _, steps := range [][]string{nil, {"only"}} {
		if _, err := a.Start(t.Context(), saga.New{Name: "two", Steps: steps}); !errors.Is(err, saga.ErrUnknownDefinition) {
			t.Errorf("no definition, steps %q: %v", steps, err)
		}
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
	testwait.Must(t, err)
	for names, want := range map[string]int{"ours": 0, "theirs": 1} {
		if got, err := log.Claim(t.Context(), uuid.New(), []string{names}, time.Minute, 10); err != nil || len(got) != want {
			t.Errorf("%s: %v, %v", names, got, err)
		}
	}
}
