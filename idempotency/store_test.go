package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// sweeping counts sweeps.
type sweeping struct {
	idempotency.Store

	n int
}

func (s *sweeping) Sweep(context.Context, int) (int, error) {
	s.n++
	return 0, nil
}

// TestKeepSwept: no time means the default one, and a negative one is told and not obeyed.
func TestKeepSwept(t *testing.T) {
	t.Parallel()
	for every, c := range map[time.Duration]struct {
		sweeps int // in three and a half hours
		want   error
	}{0: {sweeps: 4}, 2 * time.Hour: {sweeps: 2}, -1: {want: idempotency.ErrBadOptions}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour+30*time.Minute)
			defer cancel()
			var (
				s    sweeping
				told error
			)
			idempotency.KeepSwept(ctx, &s, every, func(err error) { told = err })
			if s.n != c.sweeps || !errors.Is(told, c.want) {
				t.Errorf("every %s: %d sweeps, told %v; want %d and %v", every, s.n, told, c.sweeps, c.want)
			}
			idempotency.KeepSwept(ctx, &s, -1, nil)
		})
	}
}
