package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counts is an Observer that counts.
type counts struct {
	taken, takenCommands, deepest, flushed, failed, bisected, refused, panicked atomic.Int64
	longestWait                                                                 atomic.Int64
	flushTime                                                                   atomic.Int64
	load                                                                        func() Load
}

func (c *counts) Made(load func() Load) { c.load = load }

func (c *counts) Taken(size, depth int, oldestWait time.Duration) {
	c.taken.Add(1)
	c.takenCommands.Add(int64(size))
	c.deepest.Store(max(c.deepest.Load(), int64(depth)))
	c.longestWait.Store(max(c.longestWait.Load(), int64(oldestWait)))
}

func (c *counts) Flushed(_ int, d time.Duration, err error) {
	c.flushed.Add(1)
	c.flushTime.Add(int64(d))
	if err != nil {
		c.failed.Add(1)
	}
}
func (c *counts) Bisected(int)         { c.bisected.Add(1) }
func (c *counts) Refused()             { c.refused.Add(1) }
func (c *counts) Panicked(*PanicError) { c.panicked.Add(1) }

// poison is the failure of command n.
type poison int

func (p poison) Error() string { return fmt.Sprintf("poison %d", int(p)) }

// poisoned decides like double, but fails at the first command that is in bad: a negative one panics.
func poisoned(bad ...int) func(context.Context, []int) ([]int, error) {
	return func(ctx context.Context, batch []int) ([]int, error) {
		for _, c := range batch {
			if slices.Contains(bad, c) {
				if c < 0 {
					panic(poison(c))
				}
				return nil, poison(c)
			}
		}
		return double(ctx, batch)
	}
}

// flushTogether queues the commands while another is flushed, so that they make one batch, and returns
// their answers and the flushes they took.
func flushTogether(t *testing.T, o Options, decide func(context.Context, []int) ([]int, error), cmds ...int) ([]*answer, [][]int) {
	t.Helper()
	s := held("a")
	g := New(s.flush, o)
	submit(t.Context(), g, "a", 1000)
	out := submitAll(t, g, "a", cmds...)
	// The gate orders this write before the flushes that read it.
	s.decide = decide
	s.open("a")
	wantIdle(t, g)
	return out, s.batches("a")[1:]
}

func TestFailingBatchIsBisectedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		obs := &counts{}
		got, batches := flushTogether(t, Options{Observer: obs}, poisoned(3), 1, 2, 3, 4, 5)
		wantBatches(t, batches, []int{1, 2, 3, 4, 5}, []int{1, 2}, []int{3, 4, 5}, []int{3}, []int{4, 5})
		for i, a := range got {
			if i+1 == 3 {
				wantErr(t, a, poison(3))
			} else {
				wantResult(t, a, 2*(i+1))
			}
		}
		if b, f := obs.bisected.Load(), obs.failed.Load(); b != 2 || f != 3 {
			t.Errorf("observer saw %d bisections and %d failures, want 2 and 3", b, f)
		}
	})
}

func TestSingleFailureIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, batches := flushTogether(t, Options{}, poisoned(3), 3)
		wantBatches(t, batches, []int{3})
		wantErr(t, got[0], poison(3))
	})
}

func TestIndivisibleFailureIsEveryones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("connection lost")
		o := Options{Divisible: func(err error) bool { return !errors.Is(err, lost) }}
		got, batches := flushTogether(t, o, func(context.Context, []int) ([]int, error) {
			return nil, fmt.Errorf("commit: %w", lost)
		}, 1, 2, 3)
		wantBatches(t, batches, []int{1, 2, 3})
		for _, a := range got {
			wantErr(t, a, lost)
		}
	})
}

func TestIndivisibleFailureOfAHalfLeavesTheOtherHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("connection lost")
		o := Options{Divisible: func(err error) bool { return !errors.Is(err, lost) }}
		got, batches := flushTogether(t, o, func(ctx context.Context, batch []int) ([]int, error) {
			if len(batch) == 4 {
				return nil, poison(4)
			}
			if batch[0] == 1 {
				return nil, lost
			}
			return double(ctx, batch)
		}, 1, 2, 3, 4)
		wantBatches(t, batches, []int{1, 2, 3, 4}, []int{1, 2}, []int{3, 4})
		wantErr(t, got[0], lost)
		wantErr(t, got[1], lost)
		wantResult(t, got[2], 6)
		wantResult(t, got[3], 8)
	})
}

func TestPanicIsADivisibleFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		obs := &counts{}
		// Divisible is not asked about panics.
		o := Options{Observer: obs, Divisible: func(error) bool { return false }}
		got, batches := flushTogether(t, o, poisoned(-3), 1, 2, -3, 4)
		wantBatches(t, batches, []int{1, 2, -3, 4}, []int{1, 2}, []int{-3, 4}, []int{-3}, []int{4})
		wantResult(t, got[0], 2)
		wantResult(t, got[1], 4)
		wantResult(t, got[3], 8)
		wantErr(t, got[2], poison(-3)) // The panic's value was an error, so Unwrap gives it.
		var p *PanicError
		if !errors.As(got[2].err, &p) {
			t.Fatalf("got %T, want a *PanicError", got[2].err)
		}
		if p.Value != poison(-3) || !strings.Contains(string(p.Stack), "commit_test.go") {
			t.Errorf("value %v, stack:\n%s", p.Value, p.Stack)
		}
		if n := obs.panicked.Load(); n != 3 {
			t.Errorf("observer saw %d panics, want 3", n)
		}
	})
}

func TestPanicErrorUnwrapsErrorsOnly(t *testing.T) {
	if err := errors.Unwrap(&PanicError{Value: "text"}); err != nil {
		t.Errorf("got %v", err)
	}
	if (&PanicError{Value: "text", Stack: []byte("secret")}).Error() != "groupcommit: flush panicked: text" {
		t.Error("unexpected text")
	}
}

func TestWrongNumberOfResultsIsNotDivisible(t *testing.T) {
	for _, n := range []int{0, 2, 4} {
		synctest.Test(t, func(t *testing.T) {
			got, batches := flushTogether(t, Options{}, func(context.Context, []int) ([]int, error) {
				return make([]int, n), nil
			}, 1, 2, 3)
			wantBatches(t, batches, []int{1, 2, 3})
			for _, a := range got {
				wantErr(t, a, ErrResultCount)
			}
		})
	}
}

func TestResultsBesideAnErrorAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, _ := flushTogether(t, Options{}, func(context.Context, []int) ([]int, error) {
			return []int{7}, poison(1)
		}, 1)
		wantErr(t, got[0], poison(1))
		if got[0].result != 0 {
			t.Errorf("got result %d beside an error", got[0].result)
		}
	})
}

func TestFlushMayScribbleOverItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := poisoned(3)
		got, _ := flushTogether(t, Options{}, func(ctx context.Context, batch []int) ([]int, error) {
			result, err := bad(ctx, batch)
			clear(batch)
			return result, err
		}, 1, 2, 3, 4)
		wantResult(t, got[0], 2)
		wantErr(t, got[2], poison(3))
		wantResult(t, got[3], 8)
	})
}

func TestObserverSeesSizesDepthsAndTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		obs := &counts{}
		g := New(func(ctx context.Context, _ string, batch []int) ([]int, error) {
			time.Sleep(time.Second) // The bubble's clock, not the world's.
			return double(ctx, batch)
		}, Options{Observer: obs, MaxBatch: 2})
		submitAll(t, g, "a", 1, 2, 3, 4)
		if err := g.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Batches 1, 2+3 and 4; the last waited for two flushes of a second each.
		got := []int64{obs.taken.Load(), obs.takenCommands.Load(), obs.deepest.Load(), obs.flushed.Load()}
		if !slices.Equal(got, []int64{3, 4, 1, 3}) {
			t.Errorf("saw (batches, commands, depth, flushes) %v", got)
		}
		wait, flush := time.Duration(obs.longestWait.Load()), time.Duration(obs.flushTime.Load())
		if wait != 2*time.Second || flush != 3*time.Second {
			t.Errorf("saw a wait of %v and %v of flushing", wait, flush)
		}
	})
}

// TestLoad counts what is in flight: what is being committed, and what waits behind it.
func TestLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, obs := held("a", "b"), &counts{}
		g := New(s.flush, Options{Observer: obs})
		submitAll(t, g, "a", 1, 2, 3)
		ctx, leave := context.WithCancel(t.Context())
		submit(ctx, g, "a", 4)
		submit(t.Context(), g, "b", 5)
		synctest.Wait()
		if got := obs.load(); got != (Load{All: 5, Most: 4}) {
			t.Errorf("while both lanes are held: %+v", got)
		}
		leave()
		synctest.Wait()
		s.open("b")
		if got := obs.load(); got != (Load{All: 3, Most: 3}) {
			t.Errorf("after one has left, and one lane is done: %+v", got)
		}
		s.open("a")
		wantIdle(t, g)
		if got := obs.load(); got != (Load{}) {
			t.Errorf("at rest: %+v", got)
		}
	})
}
