package groupcommit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestCloseDrainsWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held("a", "b")
		g := New(s.flush, Options{MaxLanesBusy: 1, MaxBatch: 1})
		answers := append(submitAll(t, g, "a", 1, 2), submitAll(t, g, "b", 3)...)
		var closed [2]atomic.Bool
		for i := range closed {
			go func() {
				if err := g.Close(t.Context()); err != nil {
					t.Error(err)
				}
				closed[i].Store(true)
			}()
		}
		synctest.Wait()
		wantErr(t, submit(t.Context(), g, "a", 4), ErrClosed)
		s.step("a")
		s.step("b")
		if closed[0].Load() || closed[1].Load() {
			t.Error("Close returned before the last flush")
		}
		s.step("a")
		if !closed[0].Load() || !closed[1].Load() {
			t.Error("Close did not return after the last flush")
		}
		for i, a := range answers {
			wantResult(t, a, 2*(i+1))
		}
		wantIdle(t, g)
	})
}

func TestCloseOfAnIdleGroupSucceedsUnderAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g := New(double0, Options{})
	for range 2 {
		if err := g.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	if _, err := g.Do(t.Context(), "a", 1); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestCloseOutOfTimeCancelsAndAnswersEveryone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		g := New(func(ctx context.Context, _ string, _ []int) ([]int, error) {
			calls.Add(1)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}, Options{MaxLanesBusy: 1})
		running := submit(t.Context(), g, "a", 1)
		behind := submit(t.Context(), g, "a", 2)
		ready := submit(t.Context(), g, "b", 3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		err := g.Close(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close returned %v", err)
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("Close took %v", took)
		}
		synctest.Wait()
		wantErr(t, running, ErrClosed) // What the flush itself said: its context's cause.
		wantErr(t, behind, ErrClosed)
		wantErr(t, ready, ErrClosed)
		for _, a := range []*answer{running, behind, ready} {
			if errors.Is(a.err, ErrInFlight) {
				t.Errorf("%v leaves doubt where there is none", a.err)
			}
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("%d flushes, want 1", n)
		}
		wantIdle(t, g)
	})
}

func TestCloseOutOfTimeHandsOutTheResultOfAFlushThatSucceedsAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(func(ctx context.Context, _ string, batch []int) ([]int, error) {
			<-ctx.Done()
			return double(ctx, batch)
		}, Options{})
		a := submit(t.Context(), g, "a", 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Close(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Close returned %v", err)
		}
		synctest.Wait()
		wantResult(t, a, 2)
	})
}

func TestCloseOutOfTimeStopsABisection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held("a")
		g := New(s.flush, Options{})
		submit(t.Context(), g, "a", 0)
		answers := submitAll(t, g, "a", 1, 2, 3, 4)
		s.step("a")
		s.decide = poisoned(4)
		s.step("a") // All four fail; the first half is now being flushed.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		done := make(chan error)
		go func() { done <- g.Close(ctx) }()
		synctest.Wait()
		s.open("a")
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Close returned %v", err)
		}
		synctest.Wait()
		wantBatches(t, s.batches("a"), []int{0}, []int{1, 2, 3, 4}, []int{1, 2})
		wantResult(t, answers[0], 2)
		wantResult(t, answers[1], 4)
		wantErr(t, answers[2], ErrClosed)
		wantErr(t, answers[3], ErrClosed)
		wantIdle(t, g)
	})
}

func TestCloseAnswersForAFlushThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held("a") // Deaf to its context.
		g := New(s.flush, Options{CloseGrace: 3 * time.Second, MaxLanesBusy: 1})
		submit(t.Context(), g, "a", 0)
		// Commands 2 and 4 lose their callers in flight: a second answer to them would block for ever.
		gone, leave := context.WithCancel(t.Context())
		answers := make([]*answer, 5)
		for cmd := 1; cmd < len(answers); cmd++ {
			ctx := t.Context()
			if cmd%2 == 0 {
				ctx = gone
			}
			answers[cmd] = submit(ctx, g, "a", cmd)
		}
		s.step("a")
		leave()
		s.decide = poisoned(3)
		s.step("a")
		s.step("a") // 1 and 2 are answered; 3 and 4 are being flushed.
		behind := submit(t.Context(), g, "a", 5)
		ready := submit(t.Context(), g, "b", 6)
		flushing := g.lanes["a"].batches[0]

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if err := g.Close(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Close returned %v", err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("Close took %v, want its grace", took)
		}
		synctest.Wait()
		wantResult(t, answers[1], 2)
		wantErr(t, answers[2], context.Canceled, ErrInFlight)
		wantErr(t, answers[3], ErrClosed, ErrInFlight)
		wantErr(t, answers[4], context.Canceled, ErrInFlight)
		for _, a := range []*answer{behind, ready} {
			wantErr(t, a, ErrClosed)
			if errors.Is(a.err, ErrInFlight) {
				t.Errorf("%v leaves doubt where there is none", a.err)
			}
		}
		if cmd := flushing.waiters[2].cmd; cmd != 3 {
			t.Errorf("a waiter was recycled under its flush, its command is now %d", cmd)
		}

		s.open("a") // What it says now is not heard.
		wantErr(t, answers[3], ErrClosed, ErrInFlight)
		wantErr(t, answers[4], context.Canceled, ErrInFlight)
		if err := g.Close(t.Context()); err != nil {
			t.Errorf("second Close returned %v", err)
		}
		wantBatches(t, s.batches("b"))
		wantIdle(t, g)
	})
}

func TestFailureOfACancelledFlushIsNotBisected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held("a")
		s.decide = func(ctx context.Context, batch []int) ([]int, error) {
			if len(batch) == 1 {
				return double(ctx, batch)
			}
			<-ctx.Done()
			return nil, poison(len(batch)) // Such as: outcome unknown.
		}
		g := New(s.flush, Options{})
		submit(t.Context(), g, "a", 0)
		answers := submitAll(t, g, "a", 1, 2)
		s.open("a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Close(ctx); err != nil && !errors.Is(err, context.Canceled) { // None, if the flush returns before Close looks.
			t.Errorf("Close returned %v", err)
		}
		synctest.Wait()
		wantBatches(t, s.batches("a"), []int{0}, []int{1, 2})
		wantErr(t, answers[0], poison(2))
		wantErr(t, answers[1], poison(2))
	})
}

// TestCloseUnderLoadAnswersEveryone runs in real time, for the race detector's sake. A command that
// was answered with success was committed once; one that was answered with an error without doubt was not.
func TestCloseUnderLoadAnswersEveryone(t *testing.T) {
	const callers, each = 64, 40
	for round, patience := range []time.Duration{0, time.Millisecond, time.Minute} {
		var committed [callers * each]atomic.Int32
		g := New(func(ctx context.Context, _ int, batch []int) ([]int, error) {
			select { // As long as a fast commit.
			case <-time.After(200 * time.Microsecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			for _, c := range batch {
				if c%97 == 0 {
					return nil, poison(c)
				}
			}
			for _, c := range batch {
				committed[c].Add(1)
			}
			return batch, nil
		}, Options{MaxQueue: 20, MaxBatch: 8, MaxLanesBusy: 2})
		var started, all sync.WaitGroup
		started.Add(callers)
		var refused atomic.Int64
		for caller := range callers {
			all.Go(func() {
				for i := range each {
					cmd := caller*each + i
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+cmd%7)*time.Millisecond)
					if cmd%7 == 6 {
						cancel()
						ctx, cancel = context.WithCancel(t.Context())
					}
					got, err := g.Do(ctx, caller%4, cmd)
					cancel()
					if i == 1 {
						started.Done()
					}
					n := committed[cmd].Load()
					switch {
					case err == nil && (got != cmd || n != 1):
						t.Errorf("command %d: got %d, committed %d times", cmd, got, n)
					case err != nil && !errors.Is(err, ErrInFlight) && n != 0:
						t.Errorf("command %d: %v, yet committed", cmd, err)
					case errors.Is(err, ErrClosed):
						refused.Add(1)
					}
				}
			})
		}
		started.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := g.Close(ctx)
		cancel()
		all.Wait()
		if round == 2 && err != nil {
			t.Errorf("Close returned %v", err)
		}
		if refused.Load() == 0 {
			t.Error("Close came after the load, the test shows nothing")
		}
		if len(g.lanes) != 0 || g.workers != 0 {
			t.Errorf("the closed group has %d lanes, %d workers", len(g.lanes), g.workers)
		}
	}
}
