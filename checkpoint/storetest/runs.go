package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// count are the parameters of the operations that the suite runs: n steps, each of which gives a number.
type count struct {
	N    int `json:"n"`
	From int `json:"from"`
}

func counting(n int) count { return count{N: n, From: 100} }

// steps give numbers that follow from parameters, seed and step, and remember what was asked of them.
type steps struct {
	count
	seed checkpoint.Seed
	hook func(step int) error // called before each step
}

func (s *steps) Count() int { return s.N }

func (s *steps) Do(_ context.Context, step int) (int64, error) {
	if s.hook != nil {
		if err := s.hook(step); err != nil {
			return 0, err
		}
	}
	var sum uint64
	for i := range 4 {
		sum += binary.BigEndian.Uint64(s.seed[8*i:]) * uint64(step+i+1) //nolint:gosec // Steps are not negative.
	}
	return int64(s.From+step) + int64(sum>>40), nil
}

func definition(hook func(step int) error) checkpoint.Definition[count, int64] {
	return checkpoint.Definition[count, int64]{
		Name: "counting",
		Open: func(p count, seed checkpoint.Seed) (checkpoint.Steps[int64], error) {
			if p.N < 0 {
				return nil, errors.New("n is negative")
			}
			return &steps{count: p, seed: seed, hook: hook}, nil
		},
	}
}

func runner(tb testing.TB, store checkpoint.Store, o checkpoint.Options) *checkpoint.Runner[count, int64] {
	tb.Helper()
	return hooked(tb, store, o, nil)
}

func hooked(tb testing.TB, store checkpoint.Store, o checkpoint.Options, hook func(int) error) *checkpoint.Runner[count, int64] {
	tb.Helper()
	r, err := checkpoint.New(definition(hook), store, nil, o)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func body(t *testing.T, s checkpoint.Store, k checkpoint.Key) []byte {
	t.Helper()
	b, err := s.Load(t.Context(), k)
	testwait.Must(t, err)
	return b
}

var errPower = errors.New("power cut")

// testInterrupted cuts an operation at every step, by an error, the end of its context, or by the death of its process right
// before a save, and goes on each time: its results are those of an unbroken one.
func testInterrupted(t *testing.T, h Harness) {
	t.Helper()
	seed := checkpoint.Seed{1, 2, 3}
	const n = 23
	for _, every := range []int{1, 4, 100} {
		o := checkpoint.Options{Every: every}
		unbroken, err := runner(t, h.Store, o).Run(t.Context(), key(fmt.Sprint("unbroken", every)), counting(n), checkpoint.Call{Seed: &seed})
		testwait.Must(t, err)
		k := key(fmt.Sprint("broken", every))
		call := checkpoint.Call{Seed: &seed}
		done := 0
		for at := 0; ; at++ {
			ctx, cancel := context.WithCancel(t.Context())
			r := hooked(t, &dying{Store: h.Store, dies: at%3 == 2}, o, func(step int) error {
				switch {
				case step < at:
					return nil
				case at%3 == 1:
					cancel()
					return nil
				}
				return errPower
			})
			if at == n {
				r = runner(t, h.Store, o)
			}
			call.Progress = func(p checkpoint.Progress) {
				if p.Completed < done || p.Total != n || p.Key != k {
					t.Errorf("after %d of %d steps comes %+v", done, n, p)
				}
				done = p.Completed
			}
			res, err := r.Run(ctx, k, counting(n), call)
			cancel()
			if res != nil && !slices.Equal(res.Results, unbroken.Results[:res.Completed]) {
				t.Fatalf("cut at %d: %v", at, res.Results)
			}
			if at == n || (err == nil && res.Completed == n) {
				testwait.Must(t, err)
				if res.Status != checkpoint.StatusCompleted || res.Partial() || !slices.Equal(res.Results, unbroken.Results) {
					t.Fatalf("in the end: %+v", res)
				}
				break
			}
			if err == nil {
				t.Fatalf("cut at %d, and no error", at)
			}
			if _, err := r.Run(t.Context(), k, count{N: n, From: 1}, checkpoint.Call{Seed: &seed}); !errors.Is(err, checkpoint.ErrOtherParameters) && res != nil {
				t.Errorf("other parameters: %v", err)
			}
		}
		results := func(k checkpoint.Key) []byte {
			s, err := checkpoint.Decode(body(t, h.Store, k))
			testwait.Must(t, err)
			return append([]byte(s.Digest), s.Results...)
		}
		if a, b := results(key(fmt.Sprint("unbroken", every))), results(k); !bytes.Equal(a, b) {
			t.Errorf("saved\n%s, and without a break\n%s", b, a)
		}
		other := checkpoint.Seed{9}
		_, err = runner(t, h.Store, o).Run(t.Context(), k, counting(n), checkpoint.Call{Seed: &other})
		wantError(t, "another seed", err, checkpoint.ErrOtherParameters)
		again, err := runner(t, h.Store, o).Run(t.Context(), k, counting(n), checkpoint.Call{})
		if err != nil || !slices.Equal(again.Results, unbroken.Results) {
			t.Errorf("run again: %+v, %v", again, err)
		}
	}
}

// dying is a store that a process has until it dies: every save but the first fails then.
type dying struct {
	checkpoint.Store

	mu    sync.Mutex
	dies  bool
	saves int
}

func (d *dying) Save(ctx context.Context, key checkpoint.Key, s *checkpoint.Save) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.saves++; d.dies && d.saves > 2 {
		return errPower
	}
	return d.Store.Save(ctx, key, s)
}

// testZombie lets a run stand still while another goes on with its operation. It finds out at its next save.
func testZombie(t *testing.T, h Harness) {
	t.Helper()
	k := key("zombie")
	reached, goOn := make(chan struct{}), make(chan struct{})
	old := hooked(t, h.Store, checkpoint.Options{Every: 2}, func(step int) error {
		if step == 3 {
			close(reached)
			<-goOn
		}
		return nil
	})
	told := make(chan error, 1)
	go func() {
		_, err := old.Run(context.WithoutCancel(t.Context()), k, counting(8), checkpoint.Call{Token: 7})
		told <- err
	}()
	<-reached
	res, err := runner(t, h.Store, checkpoint.Options{}).Resume(t.Context(), k, checkpoint.Call{Token: 8})
	testwait.Must(t, err)
	before := body(t, h.Store, k)
	close(goOn)
	err = <-told
	wantError(t, "the old run", err, checkpoint.ErrFenced)
	if !bytes.Equal(before, body(t, h.Store, k)) || len(res.Results) != 8 {
		t.Errorf("the old run changed what the new one saved: %+v", res)
	}
	_, err = runner(t, h.Store, checkpoint.Options{}).Rollback(t.Context(), k, checkpoint.Call{Token: 7})
	wantError(t, "a roll-back under the old token", err, checkpoint.ErrFenced)
}

// testForgotten makes the store lose its memory under a run.
func testForgotten(t *testing.T, h Harness) {
	t.Helper()
	k := key("forgotten")
	r := hooked(t, h.Store, checkpoint.Options{}, func(step int) error {
		if step == 5 {
			h.Forget(t)
		}
		return nil
	})
	res, err := r.Run(t.Context(), k, counting(9), checkpoint.Call{})
	wantError(t, "the run", err, checkpoint.ErrLost)
	if res == nil || !res.Partial() || res.Completed != 5 || len(res.Results) != 5 || checkpoint.SeverityOf(err) != checkpoint.SeverityCritical {
		t.Errorf("%+v", res)
	}
	if b := body(t, h.Store, k); b != nil {
		t.Errorf("it was revived: %s", b)
	}
}

// testCorrupt plants what is no state, in many ways, and asks for all that there is to ask for.
func testCorrupt(t *testing.T, h Harness) {
	t.Helper()
	k := key("corrupt")
	r := hooked(t, h.Store, checkpoint.Options{}, func(step int) error {
		if step == 4 {
			return errPower
		}
		return nil
	})
	_, err := r.Run(t.Context(), k, counting(9), checkpoint.Call{})
	wantError(t, "a step's error", err, errPower)
	good := string(body(t, h.Store, k))
	legacy := `{"lock_key":"user_123:daily","total_count":10,"completed_count":7,"results":[42,17,89,3,56,23,91],"start_time":1703123456,"last_update_time":1703123789}`
	for what, c := range map[string]struct {
		body string
		want error
	}{
		"nothing":             {"", checkpoint.ErrCorrupt},
		"no JSON":             {"\x80\x00{", checkpoint.ErrCorrupt},
		"null":                {"null", checkpoint.ErrCorrupt},
		"a list":              {"[1,2]", checkpoint.ErrCorrupt},
		"cut off":             {good[:len(good)-10], checkpoint.ErrCorrupt},
		"something behind":    {good + "{}", checkpoint.ErrCorrupt},
		"another version":     {strings.Replace(good, `"version":1`, `"version":2`, 1), checkpoint.ErrCorrupt},
		"another result":      {strings.Replace(good, `"results":[`, `"results":[1`, 1), checkpoint.ErrCorrupt},
		"one result more":     {strings.Replace(good, `"results":[`, `"results":[1,`, 1), checkpoint.ErrCorrupt},
		"more steps done":     {strings.Replace(good, `"completed_count":4`, `"completed_count":5`, 1), checkpoint.ErrCorrupt},
		"other parameters":    {strings.Replace(good, `"from":100`, `"from":200`, 1), checkpoint.ErrCorrupt},
		"another lock key":    {strings.Replace(good, `user_123:daily`, `user_124:daily`, 1), checkpoint.ErrCorrupt},
		"another status":      {strings.Replace(good, `"running"`, `"done"`, 1), checkpoint.ErrCorrupt},
		"undone and running":  {strings.Replace(good, `"start_time"`, `"undone_count":2,"start_time"`, 1), checkpoint.ErrCorrupt},
		"a field that is new": {strings.Replace(good, `"start_time"`, `"new":2,"start_time"`, 1), checkpoint.ErrCorrupt},
		"no seed":             {strings.Replace(good, `"seed":"`, `"seed":"zz`, 1), checkpoint.ErrCorrupt},
		"the legacy form":     {legacy, checkpoint.ErrLegacy},
		"broken legacy form":  {strings.Replace(legacy, "7,", "11,", 1), checkpoint.ErrCorrupt},
	} {
		h.Plant(t, k, []byte(c.body))
		s, err := r.Load(t.Context(), k)
		switch {
		case errors.Is(c.want, checkpoint.ErrLegacy) && (err != nil || !s.Legacy() || s.CompletedCount != 7 || s.StartTime != 1703123456 || string(s.Results) != "[42,17,89,3,56,23,91]"):
			t.Errorf("%s: load: %+v, %v", what, s, err)
		case errors.Is(c.want, checkpoint.ErrCorrupt):
			wantError(t, what+": load", err, c.want)
		}
		_, err = r.Run(t.Context(), k, counting(9), checkpoint.Call{})
		wantError(t, what+": run", err, c.want)
		_, err = r.Resume(t.Context(), k, checkpoint.Call{})
		wantError(t, what+": resume", err, c.want)
		_, err = r.Rollback(t.Context(), k, checkpoint.Call{})
		wantError(t, what+": roll back", err, c.want)
		if checkpoint.SeverityOf(err) != checkpoint.SeverityCritical {
			t.Errorf("%s: severity %s", what, checkpoint.SeverityOf(err))
		}
		if got := string(body(t, h.Store, k)); got != c.body {
			t.Fatalf("%s: it was changed to %q", what, got)
		}
	}
	testwait.Must(t, r.Delete(t.Context(), k))
	if s, err := r.Load(t.Context(), k); err != nil || s != nil {
		t.Errorf("after it was deleted: %+v, %v", s, err)
	}
	_, err = runner(t, h.Store, checkpoint.Options{}).Run(t.Context(), k, counting(9), checkpoint.Call{})
	testwait.Must(t, err)
}

// testTooLarge makes a state grow past the limit: the last save that was possible stays.
func testTooLarge(t *testing.T, h Harness) {
	t.Helper()
	long := checkpoint.Definition[int, string]{
		Name: "long",
		Open: func(n int, _ checkpoint.Seed) (checkpoint.Steps[string], error) { return longSteps(n), nil },
	}
	r, err := checkpoint.New(long, h.Store, nil, checkpoint.Options{TTL: time.Minute})
	testwait.Must(t, err)
	res, err := r.Run(t.Context(), key("large"), 5, checkpoint.Call{})
	size, ok := errors.AsType[*checkpoint.SizeError](err)
	if !ok || size.Bytes <= checkpoint.MaxBytes || res == nil || res.Completed != 3 || !res.Partial() || checkpoint.SeverityOf(err) != checkpoint.SeverityCaller {
		t.Fatalf("%v", err)
	}
	s, err := r.Load(t.Context(), key("large"))
	if err != nil || s.CompletedCount != 3 || s.Status != checkpoint.StatusRunning {
		t.Fatalf("%v", err)
	}
}

type longSteps int

func (n longSteps) Count() int { return int(n) }

func (n longSteps) Do(_ context.Context, step int) (string, error) {
	return strings.Repeat("abcde"[step:step+1], 3<<20), nil
}
