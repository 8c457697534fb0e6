package fairlead

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestBackgroundWorkPanics: a sweeper that panics is called again when it is due, and a leader that panics resigns.
func TestBackgroundWorkPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		panics := 0
		var log strings.Builder
		logger := slog.New(slog.NewTextHandler(&log, nil))
		s := &Server{logger: logger, barrier: barrier{logger, func() { panics++ }}}
		ctx, stop := context.WithCancel(t.Context())
		calls := 0
		s.sweep(ctx, "holds", time.Minute, func(context.Context) (int, error) {
			if calls++; calls == 3 {
				stop()
				return 0, nil
			}
			return make([]int, 1)[calls], nil
		})
		if calls != 3 || panics != 2 {
			t.Errorf("it was called %d times and panicked %d times", calls, panics)
		}
		s.barrier.lead("rounds", func(context.Context, int64) { panic(errors.New("no auction")) })(t.Context(), 7)
		if panics != 3 {
			t.Error("a leader's panic was not counted")
		}
		for _, want := range []string{"work=holds", "index out of range", "work=rounds", "no auction", "barrier_test.go"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, &log)
			}
		}
	})
}
