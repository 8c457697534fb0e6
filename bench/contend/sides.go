package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/lockprom"
)

// ttl is how long every side's locks outlive a holder that dies.
const ttl = 15 * time.Second

// open connects a side.
func open(ctx context.Context, o *options) (*side, error) {
	switch o.side {
	case "fairlead-postgres":
		return fairleadPostgres(ctx, o)
	case "lease-row":
		return leaseRow(ctx, o)
	case "advisory":
		return advisory(ctx, o)
	case "fairlead-redis":
		return fairleadRedis(ctx, o)
	case "redislock":
		return bsmRedislock(o, 100*time.Millisecond)
	case "redislock-1ms":
		return bsmRedislock(o, time.Millisecond)
	case "redsync":
		return redsyncMutex(o)
	case "etcd":
		return etcdMutex(o)
	}
	return nil, fmt.Errorf("there is no side %q", o.side)
}

// class labels the metrics of all of Fairlead's locks here.
const class = "bench"

// newMetrics are what the product counts and measures of its locks.
func newMetrics() *lockprom.Metrics { return lockprom.New(prometheus.NewRegistry(), class) }

// fairlead is the side of a backend, used as programs do: with renewal, metrics and a log.
func fairlead(b lock.Backend, m *lockprom.Metrics, closeAll func()) *side {
	l := lock.New(b, lock.LockerOptions{Logger: slog.Default(), Observer: m})
	return &side{
		worker: func(_ context.Context, key string) (acquire, error) {
			keys, last := []string{key}, int64(0)
			return func(ctx context.Context) (func(context.Context) error, error) {
				h, err := l.Acquire(ctx, keys, lock.Options{TTL: ttl, Wait: lock.Forever, Class: class})
				if err != nil {
					return nil, err
				}
				if token := h.Token(key); token <= last {
					return nil, fmt.Errorf("token %d came after %d", token, last)
				}
				last = h.Token(key)
				return h.Release, nil
			}, nil
		},
		close: closeAll,
	}
}
