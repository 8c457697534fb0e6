package goredisclient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// pingEvery is how often a subscription asks whether its connection is alive. A server that has said nothing until the next
// ping is taken for dead.
const pingEvery = 5 * time.Second

var errSilent = errors.New("the server did not answer a ping")

// Subscribe reads from the connection itself. go-redis's channels connect again by themselves, and do not say that messages were
// lost meanwhile.
func (c client) Subscribe(ctx context.Context, channel string, subscribed func(), message func(text string)) error {
	p := c.redis.Subscribe(ctx) // It connects when it is told the channel.
	watched, stop := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop(nil)
	defer func() { _ = p.Close() }()
	// Reading is not interrupted by the end of a context, but by the end of the connection.
	defer context.AfterFunc(watched, func() { _ = p.Close() })()
	if err := p.Subscribe(ctx, channel); err != nil {
		return failure(err)
	}
	var heard atomic.Bool
	all.Go(func() { ping(watched, p, &heard, stop) })
	for {
		m, err := p.Receive(ctx)
		if err != nil {
			if cause := context.Cause(watched); cause != nil {
				err = cause
			}
			return failure(err)
		}
		heard.Store(true)
		switch m := m.(type) {
		case *redis.Subscription:
			subscribed()
		case *redis.Message:
			message(m.Payload)
		}
	}
}

// ping ends a subscription whose server has fallen silent.
func ping(ctx context.Context, p *redis.PubSub, heard *atomic.Bool, end context.CancelCauseFunc) {
	ticks := time.NewTicker(pingEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if !heard.Swap(false) {
			end(errSilent)
			return
		}
		if err := p.Ping(ctx); err != nil {
			end(fmt.Errorf("ping: %w", err))
			return
		}
	}
}
