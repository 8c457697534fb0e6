package wait_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// TestAskedFirst: whatever the context is asked for first, it has compared the clock.
func TestAskedFirst(t *testing.T) {
	t.Parallel()
	over := errors.New("over")
	for name, ended := range map[string]func(context.Context) bool{
		"Err":   func(ctx context.Context) bool { return ctx.Err() != nil },
		"Cause": func(ctx context.Context) bool { return errors.Is(context.Cause(ctx), over) },
		"Done": func(ctx context.Context) bool {
			select {
			case <-ctx.Done():
				return true
			default:
				return false
			}
		},
		"made from it": func(ctx context.Context) bool {
			made, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			return errors.Is(context.Cause(made), over)
		},
	} {
		inner, cancel := context.WithCancelCause(t.Context())
		lapsed := false
		ctx := wait.Lease(inner, func() {
			if lapsed {
				cancel(over)
			}
		})
		made, stop := context.WithCancel(ctx)
		if ended(ctx) || made.Err() != nil {
			t.Errorf("%s: ended in time", name)
		}
		lapsed = true
		if !ended(ctx) || made.Err() == nil || !errors.Is(context.Cause(ctx), over) || !errors.Is(context.Cause(made), over) {
			t.Errorf("%s: not ended, or for another reason: %v", name, context.Cause(ctx))
		}
		stop()
		cancel(nil)
	}
}

// TestEveryOnce wants one call for a tick and a wake that come while f is at work, and none after the end.
func TestEveryOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const d = time.Second
		for range 20 { // Select takes any of what is ready.
			ctx, cancel := context.WithCancel(t.Context())
			wake := make(chan struct{}, 1)
			var at []time.Duration
			began := time.Now()
			wait.Every(ctx, d, wake, func() {
				at = append(at, time.Since(began))
				switch len(at) {
				case 1:
					time.Sleep(d)
					wait.Signal(wake)
				case 3:
					time.Sleep(d)
					wait.Signal(wake)
					cancel()
				}
			})
			if want := []time.Duration{0, d, 2 * d}; !slices.Equal(at, want) {
				t.Fatalf("called after %v, want %v", at, want)
			}
		}
	})
}
