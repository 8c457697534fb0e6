package timeouts

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type key struct{}

// Whenever a call begins, it gets the time of the group, and an eighth more at most, however its context is made.
func TestBound(t *testing.T) {
	t.Parallel()
	parents := map[string]func(context.Context) (context.Context, context.CancelFunc){
		"without an end": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithoutCancel(ctx), func() {}
		},
		"with a way to end": context.WithCancel,
		"with a late end": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Hour)
		},
	}
	for name, parent := range parents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := NewGroup(8 * time.Second)
				for range 20 {
					from, end := parent(context.WithValue(t.Context(), key{}, "kept"))
					ctx, cancel := g.Bound(from)
					began := time.Now()
					deadline, ok := ctx.Deadline()
					if took := deadline.Sub(began); !ok || took < 8*time.Second || took > 9*time.Second {
						t.Errorf("ends after %v, %t", took, ok)
					}
					if ctx.Value(key{}) != "kept" {
						t.Error("the values are gone")
					}
					child, stop := context.WithCancel(ctx)
					time.Sleep(300 * time.Millisecond) // By the bubble's clock, as all times here.
					if ctx.Err() != nil || child.Err() != nil {
						t.Fatalf("ended early: %v, %v", ctx.Err(), child.Err())
					}
					go func() {
						<-child.Done()
						ended := errors.Is(ctx.Err(), context.DeadlineExceeded) && errors.Is(context.Cause(child), context.DeadlineExceeded)
						if !time.Now().Equal(deadline) || !ended || from.Err() != nil {
							t.Errorf("after %v: %v; the caller's: %v", time.Since(began), ctx.Err(), from.Err())
						}
						stop()
						cancel()
						end()
					}()
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
			})
		})
	}
}

// Of two bounds, one in the other, the first end counts, and the values stay.
func TestNested(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		long, stop := NewGroup(16 * time.Second).Bound(context.WithValue(context.WithoutCancel(t.Context()), key{}, "kept"))
		defer stop()
		short := NewGroup(8 * time.Second)
		ctx, cancel := short.Bound(long)
		defer cancel()
		began := time.Now()
		if ctx.Value(key{}) != "kept" {
			t.Error("the values are gone")
		}
		<-ctx.Done()
		if took := time.Since(began); took < 8*time.Second || took > 9*time.Second || long.Err() != nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("ended after %v by %v; the outer: %v", took, ctx.Err(), long.Err())
		}
		late, cancel := short.Bound(long) // Now the outer end comes first.
		defer cancel()
		<-late.Done()
		if took := time.Since(began); took < 15*time.Second || took > 18*time.Second {
			t.Errorf("the outer ended after %v", took)
		}
	})
}

// The caller's end is an end, with its own reason.
func TestTheCallerEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(8 * time.Second)
		from, end := context.WithCancel(t.Context())
		ctx, cancel := g.Bound(from)
		time.AfterFunc(time.Second, end)
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Errorf("ended by %v", ctx.Err())
		}
		cancel()
		early, end := context.WithTimeout(t.Context(), 7*time.Second)
		defer end()
		if ctx, cancel = g.Bound(early); ctx != early {
			t.Error("an earlier end is not the caller's own")
		}
		cancel()
	})
}

// A call that is over leaves nothing behind that waits for the end.
func TestCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(8 * time.Second)
		from, end := context.WithCancel(t.Context())
		defer end()
		for _, early := range []bool{false, true} { // asks for the channel before the end
			ctx, cancel := g.Bound(from)
			if early {
				select {
				case <-ctx.Done():
					t.Error("ended early")
				default:
				}
			}
			cancel()
			select {
			case <-ctx.Done():
			default:
				t.Error("it is over, and nobody is told")
			}
			child, stop := context.WithCancel(ctx)
			<-child.Done()
			stop()
			if !errors.Is(ctx.Err(), context.Canceled) || from.Err() != nil {
				t.Errorf("over: %v; the caller's: %v", ctx.Err(), from.Err())
			}
			time.Sleep(10 * time.Second) // The reason stays.
			if !errors.Is(ctx.Err(), context.Canceled) {
				t.Errorf("over, later: %v", ctx.Err())
			}
		}
	})
}

// BenchmarkBound sets what a call's bound takes beside that of package context.
func BenchmarkBound(b *testing.B) {
	g := NewGroup(3 * time.Second)
	from, end := context.WithCancel(b.Context())
	defer end()
	for name, parent := range map[string]context.Context{"without an end": context.WithoutCancel(b.Context()), "with a way to end": from} {
		b.Run(name+"/group", func(b *testing.B) {
			for b.Loop() {
				_, cancel := g.Bound(parent)
				cancel()
			}
		})
		b.Run(name+"/context", func(b *testing.B) {
			for b.Loop() {
				_, cancel := context.WithTimeout(parent, 3*time.Second)
				cancel()
			}
		})
	}
}
