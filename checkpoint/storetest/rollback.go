package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// cups are what the steps of a roll-back's test have effects on: step i puts i+1 balls into cup i, and may do so and then fail.
type cups struct {
	balls  [12]int
	undone []int
}

type filling struct {
	cups   *cups
	do     func(step int) error // after the effect
	undo   func(step int) error // before the effect is undone
	unsure func(checkpoint.Done[int])
}

func (f *filling) Count() int { return len(f.cups.balls) }

func (f *filling) Do(_ context.Context, step int) (int, error) {
	f.cups.balls[step] = step + 1 // The effect may be repeated.
	if f.do != nil {
		if err := f.do(step); err != nil {
			return 0, err
		}
	}
	return step + 1, nil
}

func (f *filling) Undo(_ context.Context, d checkpoint.Done[int]) error {
	if f.undo != nil {
		if err := f.undo(d.Step); err != nil {
			return err
		}
	}
	f.unsure(d)
	f.cups.balls[d.Step] = 0
	f.cups.undone = append(f.cups.undone, d.Step)
	return nil
}

// testRollback fills cups up to each step, and rolls back with interruptions: all cups are empty, from the last to the first,
// and the history is there.
func testRollback(t *testing.T, h Harness) {
	t.Helper()
	for at := range 13 {
		for _, every := range []int{1, 5} {
			t.Run(fmt.Sprintf("at-%d-each-%d", at, every), func(t *testing.T) { rollBack(t, h, at, every) })
		}
	}
}

func rollBack(t *testing.T, h Harness, at, every int) {
	t.Helper()
	k := key(fmt.Sprintf("back-%d-%d", at, every))
	c := &cups{}
	f := &filling{cups: c, do: func(step int) error {
		if step == at {
			return errPower
		}
		return nil
	}}
	f.unsure = func(d checkpoint.Done[int]) {
		if d.Certain != (d.Step < at) || (d.Certain && d.Result != d.Step+1) || (!d.Certain && d.Result != 0) {
			t.Errorf("cut at %d, it was to undo %+v", at, d)
		}
	}
	def := checkpoint.Definition[string, int]{
		Name: "filling", Open: func(string, checkpoint.Seed) (checkpoint.Steps[int], error) { return f, nil },
	}
	r, err := checkpoint.New(def, h.Store, nil, checkpoint.Options{Every: every})
	testwait.Must(t, err)
	res, err := r.Run(t.Context(), k, "x", checkpoint.Call{})
	if at < len(c.balls) != errors.Is(err, errPower) || res.Completed != min(at, len(c.balls)) {
		t.Fatalf("%+v, %v", res, err)
	}
	ran := res.Results
	tries := 0
	f.undo = func(int) error {
		if tries++; tries%3 == 0 {
			return errPower
		}
		return nil
	}
	for res.Status != checkpoint.StatusRolledBack {
		res, err = r.Rollback(t.Context(), k, checkpoint.Call{})
		if err != nil && !errors.Is(err, errPower) {
			t.Fatal(err)
		}
		if err == nil && res.Status != checkpoint.StatusRolledBack {
			t.Fatalf("%+v", res)
		}
		_, err = r.Resume(t.Context(), k, checkpoint.Call{})
		wantError(t, "resume", err, checkpoint.ErrBadTransition)
	}
	if c.balls != [12]int{} {
		t.Errorf("cut at %d, something is left: %v", at, c.balls)
	}
	if order := slices.Compact(slices.Clone(c.undone)); !slices.IsSortedFunc(order, func(a, b int) int { return b - a }) {
		t.Errorf("undone in the order %v", c.undone)
	}
	again, err := r.Rollback(t.Context(), k, checkpoint.Call{})
	testwait.Must(t, err)
	s, err := r.Load(t.Context(), k)
	testwait.Must(t, err)
	if again.Status != checkpoint.StatusRolledBack || !slices.Equal(again.Results, ran) || s.Status != checkpoint.StatusRolledBack ||
		s.StartTime == 0 || len(again.Results) != min(at, len(c.balls)) {
		t.Errorf("the history: %+v", again)
	}
	if at < len(c.balls) && (len(s.Errors) == 0 || s.Errors[0].Step != at || s.Errors[0].Message != errPower.Error() || s.Errors[0].Undo) {
		t.Errorf("the errors: %+v", s.Errors)
	}
	_, err = r.Run(t.Context(), k, "x", checkpoint.Call{})
	wantError(t, "run", err, checkpoint.ErrBadTransition)
}
