package checkpoint_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/checkpoint/storetest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// count are the parameters of operations with n steps, each of which gives a number that follows from them, the seed and the step.
type count struct {
	N    int `json:"n"`
	From int `json:"from"`
}

type counted struct {
	count

	seed checkpoint.Seed
	hook func(step int) error // called before each step; may be nil
}

func (s *counted) Count() int { return s.N }

func (s *counted) Do(_ context.Context, step int) (int64, error) {
	if s.hook != nil {
		if err := s.hook(step); err != nil {
			return 0, err
		}
	}
	return int64(s.From+step) + int64(binary.BigEndian.Uint32(s.seed[:]))*int64(step+1), nil
}

func counting(tb testing.TB, store checkpoint.Store, every int, hook func(int) error) *checkpoint.Runner[count, int64] {
	tb.Helper()
	r, err := checkpoint.New(checkpoint.Definition[count, int64]{
		Name: "counting", Open: func(p count, seed checkpoint.Seed) (checkpoint.Steps[int64], error) {
			return &counted{p, seed, hook}, nil
		},
	}, store, nil, checkpoint.Options{Every: every})
	testwait.Must(tb, err)
	return r
}

var (
	errPower = errors.New("power cut")
	op       = checkpoint.Key{LockKey: "user_123:daily", ID: "op"}
)

func failAt(at int) func(int) error {
	return func(step int) error {
		if step == at {
			return errPower
		}
		return nil
	}
}

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// second is the error of a call that gives a result, too.
func second[T any](_ T, err error) error { return err }

func body(t *testing.T, s checkpoint.Store) []byte {
	t.Helper()
	b, err := s.Load(t.Context(), op)
	testwait.Must(t, err)
	return b
}

// dying is a store that a process has until it dies: every save but the first two fails then.
type dying struct {
	checkpoint.Store

	dies  bool
	saves int
}

func (d *dying) Save(ctx context.Context, key checkpoint.Key, s *checkpoint.Save) error {
	if d.saves++; d.dies && d.saves > 2 {
		return errPower
	}
	return d.Store.Save(ctx, key, s)
}

// TestInterruptedAnywhere cuts an operation at every step, by an error, the end of its context, or by the death of its process
// right before a save, and goes on each time: its results are those of an unbroken one.
func TestInterruptedAnywhere(t *testing.T) {
	t.Parallel()
	const n = 23
	what, seed := count{N: n, From: 100}, checkpoint.Seed{1, 2, 3}
	for _, every := range []int{1, 4, 100} {
		whole, store := &checkpoint.Memory{}, &checkpoint.Memory{}
		unbroken, err := counting(t, whole, every, nil).Run(t.Context(), op, what, checkpoint.Call{Seed: &seed})
		testwait.Must(t, err)
		done := 0
		call := checkpoint.Call{Seed: &seed, Progress: func(p checkpoint.Progress) {
			if p.Completed < done || p.Total != n || p.Key != op {
				t.Errorf("after %d of %d steps comes %+v", done, n, p)
			}
			done = p.Completed
		}}
		for at := 0; done < n; at++ {
			ctx, cancel := context.WithCancel(t.Context())
			res, err := counting(t, &dying{Store: store, dies: at%3 == 2}, every, func(step int) error {
				switch {
				case step < at:
					return nil
				case at%3 == 1:
					cancel()
					return nil
				}
				return errPower
			}).Run(ctx, op, what, call)
			cancel()
			if (err == nil) != (done == n) || res != nil && !slices.Equal(res.Results, unbroken.Results[:res.Completed]) {
				t.Fatalf("cut at %d: %+v, %v", at, res, err)
			}
			if res != nil {
				err := second(counting(t, store, every, nil).Run(t.Context(), op, count{N: n, From: 1}, checkpoint.Call{Seed: &seed}))
				wantError(t, "other parameters", err, checkpoint.ErrOtherParameters)
			}
		}
		r := counting(t, store, every, nil)
		a, err := checkpoint.Decode(body(t, whole))
		b, err2 := checkpoint.Decode(body(t, store))
		if err := errors.Join(err, err2); err != nil || a.Digest != b.Digest || !bytes.Equal(a.Results, b.Results) {
			t.Errorf("saved\n%s, and without a break\n%s: %v", b.Results, a.Results, err)
		}
		wantError(t, "another seed", second(r.Run(t.Context(), op, what, checkpoint.Call{Seed: &checkpoint.Seed{9}})), checkpoint.ErrOtherParameters)
		again, err := r.Run(t.Context(), op, what, checkpoint.Call{})
		if err != nil || !slices.Equal(again.Results, unbroken.Results) || again.Status != checkpoint.StatusCompleted || again.Partial() {
			t.Errorf("run again: %+v, %v", again, err)
		}
	}
}

// TestZombie lets a run stand still while another goes on with its operation. It finds out at its next save.
func TestZombie(t *testing.T) {
	t.Parallel()
	store := &checkpoint.Memory{}
	other := counting(t, store, 1, nil)
	var before []byte
	_, err := counting(t, store, 2, func(step int) error {
		if step == 3 {
			res, err := other.Resume(t.Context(), op, checkpoint.Call{Token: 8})
			if err != nil || len(res.Results) != 8 {
				t.Errorf("%+v, %v", res, err)
			}
			before = body(t, store)
		}
		return nil
	}).Run(t.Context(), op, count{N: 8}, checkpoint.Call{Token: 7})
	wantError(t, "the old run", err, checkpoint.ErrFenced)
	if !bytes.Equal(before, body(t, store)) {
		t.Error("the old run changed what the new one saved")
	}
	wantError(t, "a roll-back under the old token", second(other.Rollback(t.Context(), op, checkpoint.Call{Token: 7})), checkpoint.ErrFenced)
}

// TestForgotten makes the store lose its memory under a run.
func TestForgotten(t *testing.T) {
	t.Parallel()
	store := &checkpoint.Memory{}
	r := counting(t, store, 1, func(step int) error {
		if step == 5 {
			store.Forget()
		}
		return nil
	})
	res, err := r.Run(t.Context(), op, count{N: 9}, checkpoint.Call{})
	wantError(t, "the run", err, checkpoint.ErrLost)
	if res == nil || !res.Partial() || res.Completed != 5 || len(res.Results) != 5 || body(t, store) != nil {
		t.Errorf("%+v", res)
	}
	if s, err := r.Load(t.Context(), op); err != nil || s != nil {
		t.Errorf("%+v, %v", s, err)
	}
	wantError(t, "resume", second(r.Resume(t.Context(), op, checkpoint.Call{})), checkpoint.ErrNotFound)
	wantError(t, "roll back", second(r.Rollback(t.Context(), op, checkpoint.Call{})), checkpoint.ErrNotFound)
}

// TestCorrupt plants what is no state, in many ways, and asks for all that there is to ask for.
func TestCorrupt(t *testing.T) {
	t.Parallel()
	store := &checkpoint.Memory{}
	r := counting(t, store, 1, failAt(4))
	wantError(t, "a step's error", second(r.Run(t.Context(), op, count{9, 100}, checkpoint.Call{})), errPower)
	good := string(body(t, store))
	with := func(old, replaced string) string { return strings.Replace(good, old, replaced, 1) }
	const legacy = `{"lock_key":"user_123:daily","total_count":10,"completed_count":7,"results":[42,17,89,3,56,23,91],"start_time":1703123456,"last_update_time":1703123789}`
	for what, planted := range map[string]string{
		"nothing": "", "no JSON": "\x80\x00{", "null": "null", "a list": "[1,2]", "cut off": good[:len(good)-10], "something behind": good + "{}",
		"another version":     with(`"version":1`, `"version":2`),
		"another result":      with(`"results":[`, `"results":[1`),
		"one result more":     with(`"results":[`, `"results":[1,`),
		"more steps done":     with(`"completed_count":4`, `"completed_count":5`),
		"other parameters":    with(`"from":100`, `"from":200`),
		"another lock key":    with(`user_123:daily`, `user_124:daily`),
		"another status":      with(`"running"`, `"done"`),
		"undone and running":  with(`"start_time"`, `"undone_count":2,"start_time"`),
		"a field that is new": with(`"start_time"`, `"new":2,"start_time"`),
		"no seed":             with(`"seed":"`, `"seed":"zz`),
		"broken legacy form":  strings.Replace(legacy, "7,", "11,", 1),
		"the legacy form":     legacy,
	} {
		store.Plant(op, []byte(planted), time.Hour)
		want := checkpoint.ErrCorrupt
		s, err := r.Load(t.Context(), op)
		if planted == legacy {
			want = checkpoint.ErrLegacy
			if err != nil || !s.Legacy() || s.CompletedCount != 7 || s.StartTime != 1703123456 || string(s.Results) != "[42,17,89,3,56,23,91]" {
				t.Errorf("the legacy form: %+v, %v", s, err)
			}
		} else {
			wantError(t, what+": load", err, want)
		}
		wantError(t, what+": run", second(r.Run(t.Context(), op, count{9, 100}, checkpoint.Call{})), want)
		wantError(t, what+": resume", second(r.Resume(t.Context(), op, checkpoint.Call{})), want)
		wantError(t, what+": roll back", second(r.Rollback(t.Context(), op, checkpoint.Call{})), want)
		if got := string(body(t, store)); got != planted {
			t.Fatalf("%s: it was changed to %q", what, got)
		}
	}
	testwait.Must(t, r.Delete(t.Context(), op))
	testwait.Must(t, second(counting(t, store, 1, nil).Run(t.Context(), op, count{9, 100}, checkpoint.Call{})))
}

// TestTooLarge makes a state grow past the limit: the last save that was possible stays.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	long := `"` + strings.Repeat("a", 3<<20) + `"`
	r, err := checkpoint.New(echoing(long, long, long, long, long), &checkpoint.Memory{}, nil, checkpoint.Options{})
	testwait.Must(t, err)
	res, err := r.Run(t.Context(), op, "", checkpoint.Call{})
	size, ok := errors.AsType[*checkpoint.SizeError](err)
	if !ok || size.Bytes <= checkpoint.MaxBytes || res == nil || res.Completed != 3 || !res.Partial() {
		t.Fatalf("%v", err)
	}
	if s, err := r.Load(t.Context(), op); err != nil || s.CompletedCount != 3 || s.Status != checkpoint.StatusRunning {
		t.Fatalf("%v", err)
	}
}

// cups are what steps have effects on: step i puts i+1 balls into cup i, and may do so and then fail.
type cups struct {
	balls  [12]int
	undone []int

	do, undo func(step int) error // after the effect, and before it is undone
	unsure   func(checkpoint.Done[int])
}

func (c *cups) Count() int { return len(c.balls) }

func (c *cups) Do(_ context.Context, step int) (int, error) {
	c.balls[step] = step + 1 // The effect may be repeated.
	return step + 1, c.do(step)
}

func (c *cups) Undo(_ context.Context, d checkpoint.Done[int]) error {
	if err := c.undo(d.Step); err != nil {
		return err
	}
	c.unsure(d)
	c.balls[d.Step] = 0
	c.undone = append(c.undone, d.Step)
	return nil
}

// TestRollback fills cups up to each step, and rolls back with interruptions: all cups are empty, from the last to the first, and
// the history is there.
func TestRollback(t *testing.T) {
	t.Parallel()
	for at := range 13 {
		for _, every := range []int{1, 5} {
			t.Run(fmt.Sprintf("at-%d-each-%d", at, every), func(t *testing.T) {
				t.Parallel()
				rollBack(t, at, every)
			})
		}
	}
}

func rollBack(t *testing.T, at, every int) {
	t.Helper()
	tries := 0
	c := &cups{do: failAt(at), undo: func(int) error {
		if tries++; tries%3 == 0 {
			return errPower
		}
		return nil
	}, unsure: func(d checkpoint.Done[int]) {
		if d.Certain != (d.Step < at) || (d.Certain && d.Result != d.Step+1) || (!d.Certain && d.Result != 0) {
			t.Errorf("cut at %d, it was to undo %+v", at, d)
		}
	}}
	done := min(at, c.Count())
	r, err := checkpoint.New(checkpoint.Definition[string, int]{
		Name: "filling", Open: func(string, checkpoint.Seed) (checkpoint.Steps[int], error) { return c, nil },
	}, &checkpoint.Memory{}, nil, checkpoint.Options{Every: every})
	testwait.Must(t, err)
	ran, err := r.Run(t.Context(), op, "x", checkpoint.Call{})
	if done < c.Count() != errors.Is(err, errPower) || ran.Completed != done {
		t.Fatalf("%+v, %v", ran, err)
	}
	for res := ran; res.Status != checkpoint.StatusRolledBack; {
		res, err = r.Rollback(t.Context(), op, checkpoint.Call{})
		if err != nil && !errors.Is(err, errPower) || err == nil && res.Status != checkpoint.StatusRolledBack {
			t.Fatalf("%+v, %v", res, err)
		}
		wantError(t, "resume", second(r.Resume(t.Context(), op, checkpoint.Call{})), checkpoint.ErrBadTransition)
	}
	if order := slices.Compact(slices.Clone(c.undone)); c.balls != [12]int{} || !slices.IsSortedFunc(order, func(a, b int) int { return b - a }) {
		t.Errorf("cut at %d, %v is left, undone in the order %v", at, c.balls, c.undone)
	}
	again, err := r.Rollback(t.Context(), op, checkpoint.Call{})
	testwait.Must(t, err)
	s, err := r.Load(t.Context(), op)
	testwait.Must(t, err)
	if again.Status != checkpoint.StatusRolledBack || !slices.Equal(again.Results, ran.Results) || s.Status != checkpoint.StatusRolledBack ||
		s.StartTime == 0 || len(again.Results) != done {
		t.Errorf("the history: %+v", again)
	}
	if done < c.Count() && (len(s.Errors) == 0 || s.Errors[0].Step != at || s.Errors[0].Message != errPower.Error() || s.Errors[0].Undo) {
		t.Errorf("the errors: %+v", s.Errors)
	}
	wantError(t, "run", second(r.Run(t.Context(), op, "x", checkpoint.Call{})), checkpoint.ErrBadTransition)
}

func TestMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) storetest.Harness {
		m := &checkpoint.Memory{}
		return storetest.Harness{
			Store:  m,
			Plant:  func(key checkpoint.Key, body []byte) { m.Plant(key, body, time.Hour) },
			Forget: m.Forget,
		}
	})
}
