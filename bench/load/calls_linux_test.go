package load

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// answerIn is a call that takes so long.
func answerIn(d time.Duration) Call {
	return func(ctx context.Context, _ int) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestCallClosedMeasuresBetweenItsBorders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const workers, warmup, measure = 4, 50 * time.Millisecond, 100 * time.Millisecond
		r, err := CallClosed(t.Context(), workers, Phases{Warmup: warmup, Measure: measure}, answerIn(time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		// Answers come after 1, 2, …, 150 ms. Those of the first 49 and of the last one aren't measured.
		if r.Answers != workers*100 || r.Elapsed != measure || r.Latencies.TotalCount() != r.Answers || r.Quantile(50).Round(10*time.Microsecond) != time.Millisecond {
			t.Fatalf("%d calls were measured in %s, %d latencies, half of them below %s", r.Answers, r.Elapsed, r.Latencies.TotalCount(), r.Quantile(50))
		}
	})
}

func TestCallOpenCountsWaitingForAWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// As for an engine with one connection: the first call holds the only worker until the eleventh is due, and all others answer at once.
		const rate, due = 1000, 10
		var first sync.Once
		r, err := CallOpen(t.Context(), 1, rate, 0, 2*due*time.Second/rate, func(ctx context.Context, worker int) (err error) {
			first.Do(func() { err = answerIn(due*time.Second/rate)(ctx, worker) })
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.Answers != 2*due || r.Elapsed != (2*due-1)*time.Second/rate {
			t.Fatalf("%d answers in %s", r.Answers, r.Elapsed)
		}
		waited := int64(0)
		for _, bar := range r.Latencies.Distribution() {
			if bar.To >= int64(time.Second/rate) {
				waited += bar.Count
			}
		}
		if waited != due {
			t.Fatalf("%d requests waited, want %d: those that were due before the hold ended", waited, due)
		}
	})
}

func TestCallFailureEndsTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wrong := errors.New("wrong answer")
		fail := func(ctx context.Context, worker int) error {
			if worker == 0 {
				return wrong
			}
			return answerIn(time.Hour)(ctx, worker)
		}
		if _, err := CallClosed(t.Context(), 3, Phases{Measure: time.Hour}, fail); !errors.Is(err, wrong) {
			t.Errorf("closed: %v", err)
		}
		if _, err := CallOpen(t.Context(), 3, 1000, 0, time.Hour, fail); !errors.Is(err, wrong) {
			t.Errorf("open: %v", err)
		}
	})
}
