package redislock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/redisclient"
)

// hearing calls after with each answer that it passes on.
type hearing struct {
	redisclient.Client

	after func()
}

func (h hearing) Eval(ctx context.Context, script string, keys, args []string) (any, error) {
	defer h.after()
	return h.Client.Eval(ctx, script, keys, args)
}

func (h hearing) EvalSHA(ctx context.Context, sha1 string, keys, args []string) (any, error) {
	defer h.after()
	return h.Client.EvalSHA(ctx, sha1, keys, args)
}

// A request whose context ends while it is asked is undone, also where it was granted.
func TestGrantedTooLate(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	other := on(t, testredis.Rueidis.Open(t, server.Addr()), Options{})
	for name, ask := range map[string]func(b *Backend, ctx context.Context, release func()) error{
		"at once": func(b *Backend, ctx context.Context, _ func()) error {
			return testwait.Err(b.Acquire(ctx, request(time.Hour, lock.Forever, "at once")))
		},
		"in line": func(b *Backend, ctx context.Context, release func()) error {
			done := make(chan error, 1)
			go func() { done <- testwait.Err(b.Acquire(ctx, request(time.Hour, lock.Forever, "in line"))) }()
			inLine(t, b)
			release()
			return <-done
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var armed atomic.Bool
			armed.Store(name == "at once")
			b := on(t, hearing{testredis.Rueidis.Open(t, server.Addr()), func() {
				if armed.Load() {
					cancel()
				}
			}}, Options{})
			release := func() {}
			if name == "in line" {
				held := acquire(t, other, request(time.Hour, 0, name))
				release = func() {
					armed.Store(true)
					testwait.Check(t, other.Release(t.Context(), held))
				}
			}
			if err := ask(b, ctx, release); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			testwait.Check(t, other.Release(t.Context(), acquire(t, other, request(time.Minute, 0, name))))
		})
	}
}
