package sagatest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// itinerary is the input of a saga: how many steps it has, and which of them is refused.
type itinerary struct {
	Steps  int `json:"steps"`
	Refuse int `json:"refuse"`
}

type execution = func(context.Context, saga.Call) (saga.Outcome, error)

// stumble has an execution fail now and then: before its effect, after it, and by panicking.
func (s *suite) stumble(f execution) execution {
	return func(ctx context.Context, c saga.Call) (saga.Outcome, error) {
		switch s.rng(12) {
		case 0:
			return saga.Outcome{}, errFlaky
		case 1:
			panic("a bug in a step")
		}
		out, err := f(ctx, c)
		if s.rng(12) == 0 {
			return saga.Outcome{}, errFlaky // It happened, and the answer was lost.
		}
		return out, err
	}
}

// flaky makes a definition whose steps stumble.
func (s *suite) flaky() saga.Definition {
	return saga.Definition{Name: s.named("flaky"), Plan: func(of *saga.Saga) (p saga.Plan, err error) {
		var in itinerary
		if err := json.Unmarshal(of.Input, &in); err != nil {
			return p, err
		}
		for i := range in.Steps {
			do := s.effect
			if i == in.Refuse {
				do = func(ctx context.Context, tx pgx.Tx, c saga.Call) (saga.Outcome, error) {
					if _, err := s.effect(ctx, tx, c); err != nil {
						return saga.Outcome{}, err
					}
					return saga.Refuse("no"), nil // What it wrote must not stay.
				}
			}
			step := s.parts[0].Step(fmt.Sprintf("s%d", i), do, s.effect)
			step.Do, step.Undo = s.stumble(step.Do), s.stumble(step.Undo)
			p.Steps = append(p.Steps, step)
		}
		return p, nil
	}}
}

// everyStepOnce runs sagas on several processes, which die at each place, and compares what has happened with what the log says.
func (s *suite) everyStepOnce() {
	definition := s.flaky()
	deaths := 0
	ids := map[uuid.UUID]itinerary{}
	for range testwait.Count(1, 10) {
		var mortal []*process
		for _, place := range []saga.Place{saga.AfterIntent, saga.AfterStep, saga.AfterUndo} {
			p := s.doomed(definition, place, -1, 1+s.rng(5))
			mortal = append(mortal, p)
			for n := range 15 {
				in := itinerary{Steps: 1 + s.rng(5)}
				if in.Refuse = s.rng(in.Steps + 1); place == saga.AfterUndo || n%5 == 4 {
					in.Steps, in.Refuse = in.Steps+1, in.Steps // The last one, so that there is something to undo.
				}
				raw, err := json.Marshal(in)
				testwait.Must(s, err)
				started, err := p.Start(s.ctx(), saga.New{Name: definition.Name, Input: raw})
				testwait.Must(s, err)
				ids[started.ID] = in
			}
		}
		survivor := s.process(definition, nil)
		for id := range ids {
			s.ended(survivor, id)
		}
		deaths += count(mortal)
	}
	if deaths == 0 {
		s.Error("no process died")
	}
	for id, in := range ids {
		s.checkSteps(id, in)
	}
	s.Logf("%d sagas, %d deaths", len(ids), deaths)
}

// count counts those that have died.
func count(mortal []*process) (deaths int) {
	for _, p := range mortal {
		if p.dead() {
			deaths++
		}
	}
	return deaths
}

// checkSteps compares the end of a saga with its effects.
func (s *suite) checkSteps(id uuid.UUID, in itinerary) {
	s.Helper()
	ended, err := s.log.Saga(s.Context(), id)
	testwait.Must(s, err)
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
	if got := s.effects(s.h.Pools[0], id); !slices.Equal(got, want) || ended.Status != status {
		s.Errorf("saga %s: %s with %v, want %s with %v", id, ended.Status, got, status, want)
	}
}

func (s *suite) sameID() {
	definition := saga.Definition{Name: s.named("one"), Plan: func(*saga.Saga) (saga.Plan, error) {
		return saga.Plan{Steps: []saga.Step{s.parts[0].Step("only", s.effect, nil)}}, nil
	}}
	processes := [2]*process{s.process(definition, nil), s.process(definition, nil)}
	id, input := uuid.New(), json.RawMessage(`{"n": 1}`)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			done, err := processes[i%2].Run(s.ctx(), saga.New{ID: id, Name: definition.Name, Input: input})
			if err != nil || done.Status != saga.Completed || done.ID != id {
				s.Errorf("%+v, %v", done, err)
			}
		})
	}
	group.Wait()
	if got := s.effects(s.h.Pools[0], id); len(got) != 1 {
		s.Errorf("effects: %v", got)
	}
	for _, n := range []saga.New{
		{ID: id, Name: definition.Name, Input: json.RawMessage(`{"n": 2}`)}, {ID: id, Name: definition.Name, Protocol: saga.TwoPhase, Input: input},
	} {
		if _, err := processes[0].Start(s.Context(), n); !errors.Is(err, saga.ErrOtherSaga) {
			s.Errorf("%+v: %v", n, err)
		}
	}
}

// stepOnce executes a step from several connections at once, with refusals, failures and cancellations.
func (s *suite) stepOnce() {
	// However slow the machine is, none of the eight waits in vain for those before it.
	d, item := pgsaga.NewDatabase(s.h.Pools[0], pgsaga.Options{Schema: s.h.Schema, LockTimeout: patience}), s.stock("lamp", 2)
	lamps := func() int64 { return s.stocked(s.h.Pools[0], item) }
	step := d.Step("take", s.take(item, 1), s.take(item, -1))
	c := saga.Call{Saga: uuid.New(), Step: "take"}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if out, err := step.Do(s.Context(), c); err != nil || out.Refused {
				s.Error(out, err)
			}
		})
	}
	group.Wait()
	if n := lamps(); n != 1 {
		s.Errorf("%d lamps are left, of 2", n)
	}
	// A cancellation that comes too late is told so.
	late := c
	late.Cancel = saga.ReasonCancelled
	if out, err := step.Do(s.Context(), late); err != nil || out.Refused {
		s.Error(out, err)
	}
	// One that comes first stands, and so does a refusal when there is stock again.
	early := saga.Call{Saga: uuid.New(), Step: "take", Cancel: saga.ReasonDeadline}
	refused := saga.Call{Saga: uuid.New(), Step: "take"}
	if out, err := d.Step("take", s.take(item, 5), nil).Do(s.Context(), refused); err != nil || out != saga.Refuse("sold out") {
		s.Error(out, err)
	}
	for _, c := range []saga.Call{early, {Saga: early.Saga, Step: "take"}, refused} {
		if out, err := step.Do(s.Context(), c); err != nil || !out.Refused {
			s.Error(out, err)
		}
	}
	// A failure leaves nothing, and a compensation that refuses is one.
	fail := func(ctx context.Context, tx pgx.Tx, c saga.Call) (saga.Outcome, error) {
		out, err := s.take(item, 1)(ctx, tx, c)
		return out, errors.Join(err, errFlaky)
	}
	failing := saga.Call{Saga: uuid.New(), Step: "take"}
	if _, err := d.Step("take", fail, nil).Do(s.Context(), failing); !errors.Is(err, errFlaky) {
		s.Error(err)
	}
	undo := c
	undo.Undo = true
	if _, err := d.Step("take", nil, s.take(item, 5)).Undo(s.Context(), undo); err == nil {
		s.Error("a compensation was refused")
	}
	if n := lamps(); n != 1 {
		s.Errorf("%d lamps are left, of 2", n)
	}
	for range 2 {
		if out, err := step.Undo(s.Context(), undo); err != nil || out.Refused {
			s.Error(out, err)
		}
	}
	if out, err := step.Do(s.Context(), failing); err != nil || out.Refused || lamps() != 1 {
		s.Error(out, err, lamps())
	}
}

// lostLease takes a saga away from a process that is in the middle of a step: the step's context ends, and the run can write nothing.
func (s *suite) lostLease() {
	entered, cause := make(chan struct{}, 100), make(chan error, 100) // It may be taken back, and lost again.
	definition := saga.Definition{Name: s.named("slow"), Plan: func(*saga.Saga) (saga.Plan, error) {
		return saga.Plan{Steps: []saga.Step{{Name: "slow", Do: func(ctx context.Context, _ saga.Call) (saga.Outcome, error) {
			entered <- struct{}{}
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return saga.Outcome{}, ctx.Err()
		}}}}, nil
	}}
	started, err := s.process(definition, nil).Start(s.ctx(), saga.New{Name: definition.Name})
	testwait.Must(s, err)
	ctx := s.ctx()
	select {
	case <-entered:
	case <-ctx.Done():
		s.Fatal("the step did not begin")
	}
	// As if it had stood still for longer than its lease.
	const taken = `UPDATE @sagas SET owner = gen_random_uuid(), term = 2, version = version + 1, name = name || ' of nobody' WHERE id = $1`
	testwait.Must(s, testwait.Err(s.h.Pools[0].Exec(s.Context(), pgkit.In(string(s.h.Schema), taken), started.ID)))
	select {
	case err := <-cause:
		if !errors.Is(err, saga.ErrLeaseLost) {
			s.Errorf("the cause: %v", err)
		}
	case <-ctx.Done():
		s.Fatal("the step was not told")
	}
	started.Status = saga.Completed
	err = s.log.Save(s.Context(), started, nil)
	if fenced, ok := errors.AsType[*saga.FencedError](err); !ok || fenced.Term != 2 {
		s.Errorf("it wrote in an old term: %v", err)
	}
}
