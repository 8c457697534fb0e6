package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestLaneDrainsWhatQueuedDuringTheLastBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held("a")
		g := New(s.flush, Options{})
		start := time.Now()
		first := submit(t.Context(), g, "a", 1)
		wantBatches(t, s.batches("a"), []int{1}) // A lone command is not kept waiting.
		rest := submitAll(t, g, "a", 2, 3, 4)
		wantBatches(t, s.batches("a"), []int{1})
		wantUnanswered(t, first)

		s.step("a")
		wantResult(t, first, 2)
		wantBatches(t, s.batches("a"), []int{1}, []int{2, 3, 4})
		wantUnanswered(t, rest[0])
		s.step("a")
		for i, a := range rest {
			wantResult(t, a, 2*(i+2))
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("the lane waited %v on a timer", waited)
		}
		wantIdle(t, g)
	})
}

func TestBatchHoldsAtMostMaxBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held("a")
		g := New(s.flush, Options{MaxBatch: 3})
		submitAll(t, g, "a", 0, 1, 2, 3, 4, 5, 6)
		s.open("a")
		wantBatches(t, s.batches("a"), []int{0}, []int{1, 2, 3}, []int{4, 5, 6})
		wantIdle(t, g)
	})
}

func TestQueueIsFullAtExactlyMaxQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held("a", "b")
		obs := &counts{}
		g := New(s.flush, Options{MaxQueue: 3, Observer: obs})
		flushing := submit(t.Context(), g, "a", 0) // Counts no longer as waiting.
		ctx, leave := context.WithCancel(t.Context())
		waiting := submitAll(t, g, "a", 1, 2)
		leaver := submit(ctx, g, "a", 3)
		wantUnanswered(t, leaver)

		wantErr(t, submit(t.Context(), g, "a", 4), ErrFull)
		if n := obs.refused.Load(); n != 1 {
			t.Errorf("observer saw %d refusals, want 1", n)
		}
		wantUnanswered(t, submit(t.Context(), g, "b", 5)) // Another lane has room of its own.

		leave()
		synctest.Wait()
		wantErr(t, leaver, context.Canceled)
		last := submit(t.Context(), g, "a", 6) // Into the room the leaver gave back.
		wantErr(t, submit(t.Context(), g, "a", 7), ErrFull)
		s.open("a")
		s.open("b")
		wantBatches(t, s.batches("a"), []int{0}, []int{1, 2, 6})
		wantResult(t, flushing, 0)
		wantResult(t, waiting[1], 4)
		wantResult(t, last, 12)
		wantIdle(t, g)
	})
}

func TestLanesRunSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held("a", "b")
		g := New(s.flush, Options{})
		a := submit(t.Context(), g, "a", 1)
		b := submit(t.Context(), g, "b", 2)
		s.step("b")
		wantResult(t, b, 4)
		wantUnanswered(t, a)
		s.step("a")
		wantResult(t, a, 2)
		wantIdle(t, g)
	})
}

func TestBusyLanesAreLimitedAndTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held("a", "b", "c")
		g := New(s.flush, Options{MaxLanesBusy: 2, MaxBatch: 1})
		submitAll(t, g, "a", 1, 2)
		submitAll(t, g, "b", 3)
		submitAll(t, g, "c", 4)
		wantHeld(t, g, 2, 3, 2)
		wantBatches(t, s.batches("c"))
		s.step("a") // c was ready before a was again.
		wantBatches(t, s.batches("c"), []int{4})
		wantBatches(t, s.batches("a"), []int{1})
		s.step("c")
		wantBatches(t, s.batches("a"), []int{1}, []int{2})
		s.step("a")
		s.step("b")
		wantIdle(t, g)
	})
}

func TestDefaultLimits(t *testing.T) {
	g := New(double0, Options{})
	o := g.opts
	if o.MaxQueue != 8192 || o.MaxBatch != 512 || o.MaxLanesBusy != 8 || o.CloseGrace != time.Second {
		t.Errorf("defaults are %+v", o)
	}
	if !o.Divisible(errors.New("any")) {
		t.Error("failures are not divisible by default")
	}
}

func double0(ctx context.Context, _ string, batch []int) ([]int, error) { return double(ctx, batch) }

func TestIdleKeysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(double0, Options{})
		for i := range 1000 {
			if _, err := g.Do(t.Context(), fmt.Sprint(i), i); err != nil {
				t.Fatal(err)
			}
		}
		wantIdle(t, g)
	})
}

func TestReadyLaneWhoseCallersAllLeaveIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held("a")
		g := New(s.flush, Options{MaxLanesBusy: 1})
		a := submit(t.Context(), g, "a", 1)
		ctx, leave := context.WithCancel(t.Context())
		b := submit(ctx, g, "b", 2)
		leave()
		synctest.Wait()
		wantErr(t, b, context.Canceled)
		wantHeld(t, g, 0, 1, 1)
		s.step("a")
		wantResult(t, a, 2)
		wantBatches(t, s.batches("b"))
		wantIdle(t, g)
	})
}

func TestEndedContextIsNotQueued(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g := New(double0, Options{})
	// A closed group queues nothing and would say so, were it asked.
	if err := g.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Do(ctx, "a", 1); !errors.Is(err, context.Canceled) || errors.Is(err, ErrInFlight) {
		t.Errorf("got %v", err)
	}
}

func TestCallerWhoLeavesBeforeItsBatchIsTakenDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held("a")
		g := New(s.flush, Options{})
		first := submit(t.Context(), g, "a", 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		second := submit(t.Context(), g, "a", 2)
		leaver := submit(ctx, g, "a", 3)
		fourth := submit(t.Context(), g, "a", 4)
		<-ctx.Done()
		synctest.Wait()
		wantErr(t, leaver, context.DeadlineExceeded)
		if errors.Is(leaver.err, ErrInFlight) {
			t.Error("a dropped command is said to be in flight")
		}
		s.open("a")
		wantBatches(t, s.batches("a"), []int{1}, []int{2, 4})
		wantResult(t, first, 2)
		wantResult(t, second, 4)
		wantResult(t, fourth, 8)
		wantIdle(t, g)
	})
}

// TestPatience: a command that no batch has taken in time never runs. One that was taken is waited for as long as it takes.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held("a")
		g := New(s.flush, Options{Patience: time.Second})
		first := submit(t.Context(), g, "a", 1)
		second := submit(t.Context(), g, "a", 2)
		time.Sleep(time.Second)
		synctest.Wait()
		wantErr(t, second, ErrLate)
		time.Sleep(time.Minute)
		third := submit(t.Context(), g, "a", 3)
		s.open("a")
		wantResult(t, first, 2)
		wantResult(t, third, 6)
		wantBatches(t, s.batches("a"), []int{1}, []int{3})
		wantIdle(t, g)
	})
}

func TestCallerWhoLeavesAfterItsBatchIsTakenHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held("a")
		var flushErr error
		s.decide = func(ctx context.Context, batch []int) ([]int, error) {
			flushErr = errors.Join(flushErr, ctx.Err())
			return double(ctx, batch)
		}
		g := New(s.flush, Options{})
		blocker := submit(t.Context(), g, "a", 1)
		ctx, leave := context.WithCancel(t.Context())
		leaver := submit(ctx, g, "a", 2)
		neighbour := submit(t.Context(), g, "a", 3)
		s.step("a")
		wantResult(t, blocker, 2)
		leave()
		synctest.Wait()
		wantErr(t, leaver, context.Canceled, ErrInFlight)
		s.step("a")
		wantBatches(t, s.batches("a"), []int{1}, []int{2, 3})
		wantResult(t, neighbour, 6)
		wantErr(t, leaver, context.Canceled) // Still one answer.
		if flushErr != nil {
			t.Errorf("the flush's context ended: %v", flushErr)
		}
		wantIdle(t, g)
	})
}

// lagging is a context whose end is to be seen in Err before Done says so: the caller has not woken yet. A caller
// that asks for Done is kept until looks is closed.
type lagging struct {
	context.Context
	ended atomic.Bool
	done  chan struct{}
	looks chan struct{}
}

func (l *lagging) Done() <-chan struct{} {
	<-l.looks
	return l.done
}

func (l *lagging) Err() error {
	if l.ended.Load() {
		return context.Canceled
	}
	return nil
}

// lag makes a lagging context, whose caller waits before it looks for its end if held.
func lag(t *testing.T, held bool) *lagging {
	t.Helper()
	l := &lagging{Context: t.Context(), done: make(chan struct{}), looks: make(chan struct{})}
	if !held {
		close(l.looks)
	}
	return l
}

func TestTakingABatchDropsCommandsWhoseCallerHasNotWokenYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held("a")
		g := New(s.flush, Options{})
		submit(t.Context(), g, "a", 1)
		ctx := lag(t, false)
		leaver := submit(ctx, g, "a", 2)
		ctx.ended.Store(true)
		s.open("a")
		wantBatches(t, s.batches("a"), []int{1})
		wantUnanswered(t, leaver)
		wantIdle(t, g)
		close(ctx.done)
		synctest.Wait()
		wantErr(t, leaver, context.Canceled)
		if errors.Is(leaver.err, ErrInFlight) {
			t.Error("a dropped command is said to be in flight")
		}
	})
}

func TestAnswerWinsOverEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Both are there before the caller looks, and select takes either: without the second look,
		// half of the runs would fail.
		for range 100 {
			g := New(double0, Options{})
			ctx := lag(t, true)
			a := submit(ctx, g, "a", 1)
			wantUnanswered(t, a)
			ctx.ended.Store(true)
			close(ctx.done)
			close(ctx.looks)
			synctest.Wait()
			wantResult(t, a, 2)
		}
	})
}

// TestOverlap begins a second batch while the first is being flushed, once it is as large, and no third.
func TestOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held("a")
		g := New(s.flush, Options{Overlap: 1, MinOverlap: 2})
		answers := submitAll(t, g, "a", 1, 2)
		wantBatches(t, s.batches("a"), []int{1})
		answers = append(answers, submitAll(t, g, "a", 3, 4, 5, 6, 7)...)
		wantBatches(t, s.batches("a"), []int{1}, []int{2, 3})
		wantHeld(t, g, 4, 1, 1)
		s.step("a") // One of the two is through, and as many wait as the newest has.
		wantBatches(t, s.batches("a"), []int{1}, []int{2, 3}, []int{4, 5, 6, 7})
		late := submit(t.Context(), g, "a", 8)
		s.step("a")
		wantBatches(t, s.batches("a"), []int{1}, []int{2, 3}, []int{4, 5, 6, 7})
		wantUnanswered(t, late)
		s.open("a")
		for i, a := range append(answers, late) {
			wantResult(t, a, 2*(i+1))
		}
		wantIdle(t, g)
	})
}

// TestOverlapBeginsWithHalf lets commands come while their lane waits for its turn: half of them are flushed, and the others beside them.
func TestOverlapBeginsWithHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held("a")
		g := New(s.flush, Options{Overlap: 1, MinOverlap: 3})
		turn := make(chan bool)
		g.Admit(func(context.Context, string) bool { return <-turn })
		answers := submitAll(t, g, "a", 1, 2, 3, 4, 5) // Too few.
		turn <- true
		synctest.Wait()
		want := [][]int{{1, 2, 3, 4, 5}}
		wantBatches(t, s.batches("a"), want...)
		s.step("a")
		answers = append(answers, submitAll(t, g, "a", 6, 7, 8, 9, 10, 11, 12)...)
		turn <- true
		turn <- false // Of the other half.
		synctest.Wait()
		want = append(want, []int{6, 7, 8}, []int{9, 10, 11, 12})
		wantBatches(t, s.batches("a"), want...)
		s.step("a")
		s.step("a")
		answers = append(answers, submitAll(t, g, "a", 13, 14, 15, 16, 17, 18)...)
		turn <- false // It goes on.
		synctest.Wait()
		wantBatches(t, s.batches("a"), append(want, []int{13, 14, 15, 16, 17, 18})...)
		s.open("a")
		for i, a := range answers {
			wantResult(t, a, 2*(i+1))
		}
		wantIdle(t, g)
	})
}

// TestOverlapWithdrawn lets the caller of the only waiting command leave while its lane is ready for a second batch.
func TestOverlapWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held("a", "b")
		g := New(s.flush, Options{Overlap: 1, MinOverlap: 1, MaxLanesBusy: 1})
		first := submit(t.Context(), g, "a", 1)
		ctx, cancel := context.WithCancel(t.Context())
		behind := submit(ctx, g, "a", 2) // Ready to overlap, were there a worker.
		cancel()
		synctest.Wait()
		wantErr(t, behind, context.Canceled)
		other := submit(t.Context(), g, "b", 3)
		s.step("a")
		wantResult(t, first, 2)
		s.step("b")
		wantResult(t, other, 6)
		wantIdle(t, g)
	})
}
