package server

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// TestDeadlines: requests that share an end get it after the limit and within a step, keep their own values, and end with what they are
// made from; a request with an end of its own keeps it.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Second
		type key struct{}
		begun, cut := context.WithCancel(t.Context())
		base := withDeadlines(begun, limit)
		request := func(value string) context.Context {
			ctx, cancel := within(context.WithValue(base, key{}, value), limit)
			cancel() // It ends nobody else's.
			return ctx
		}
		first := request("first")
		time.Sleep(deadlineStep / 2)
		second := request("second")
		time.Sleep(deadlineStep / 2)
		third := request("third")
		if first.Done() != second.Done() || first.Done() == third.Done() {
			t.Error("an end is not shared, or too widely")
		}
		for value, ctx := range map[string]context.Context{"first": first, "second": second, "third": third} {
			if ctx.Value(key{}) != value || ctx.Err() != nil {
				t.Errorf("the %s: %v, %v", value, ctx.Value(key{}), ctx.Err())
			}
		}
		goroutines := runtime.NumGoroutine()
		derived, cancel := context.WithCancel(second)
		defer cancel()
		if n := runtime.NumGoroutine(); n != goroutines {
			t.Errorf("%d more goroutines for a context that was derived", n-goroutines)
		}
		own, cancelOwn := context.WithCancel(base)
		kept, done := within(own, limit)
		other, also := within(base, 2*limit)
		defer done()
		defer also()
		cancelOwn()
		if !errors.Is(kept.Err(), context.Canceled) || other.Done() == third.Done() {
			t.Errorf("an end of a request's own, or another limit: %v", kept.Err())
		}
		// The second began half a step after the first.
		time.Sleep(limit - deadlineStep)
		synctest.Wait()
		if first.Err() != nil {
			t.Error("the first ended before its limit")
		}
		time.Sleep(deadlineStep)
		synctest.Wait()
		if !errors.Is(second.Err(), context.DeadlineExceeded) || !errors.Is(derived.Err(), context.DeadlineExceeded) || third.Err() != nil {
			t.Errorf("after the limit: %v, %v, %v", second.Err(), derived.Err(), third.Err())
		}
		cut()
		if !errors.Is(third.Err(), context.Canceled) {
			t.Errorf("after the end of all requests: %v", third.Err())
		}
	})
}
