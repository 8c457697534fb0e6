package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	fairleadlock "github.com/fairlead-dev/fairlead/lock/redislock"
	"github.com/fairlead-dev/fairlead/redisclient/rueidisclient"
)

// goRedis is the client that both peers are documented with, as it is by default but for the size of its pool, which is
// enough for all workers.
func goRedis(o *options) *redis.Client {
	network := "tcp"
	if strings.HasPrefix(o.store, "/") {
		network = "unix"
	}
	return redis.NewClient(&redis.Options{Network: network, Addr: o.store, PoolSize: max(o.pool, o.workers, 10)})
}

func fairleadRedis(ctx context.Context, o *options) (*side, error) {
	url := "redis://" + o.store
	if strings.HasPrefix(o.store, "/") {
		url = "unix://" + o.store
	}
	config, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	config.ForceSingleClient, config.DisableCache = true, true
	client, err := rueidis.NewClient(config)
	if err != nil {
		return nil, err
	}
	// Without a deadline, the client would go over to pipelining for good.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := client.Do(ctx, client.B().Ping().Build()).Error(); err != nil {
		return nil, err
	}
	m := newMetrics()
	b, err := fairleadlock.New(rueidisclient.New(client), fairleadlock.Options{Namespace: "fairlead:bench", Observer: m})
	if err != nil {
		return nil, err
	}
	return fairlead(b, m, func() {
		b.Close()
		client.Close()
	}), nil
}

// bsmRedislock tries again at a fixed interval, which its documentation shows as 100 ms.
func bsmRedislock(o *options, every time.Duration) (*side, error) {
	client := goRedis(o)
	locker := redislock.New(client)
	worker := func(_ context.Context, key string) (acquire, error) {
		key = "redislock:" + key
		return func(ctx context.Context) (func(context.Context) error, error) {
			l, err := locker.Obtain(ctx, key, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(every)})
			if err != nil {
				return nil, err
			}
			return l.Release, nil
		}, nil
	}
	return &side{worker: worker, close: func() { _ = client.Close() }}, nil
}

// redsyncMutex tries 32 times, 50 to 250 ms apart, which is its default; who was unlucky then asks anew.
func redsyncMutex(o *options) (*side, error) {
	client := goRedis(o)
	rs := redsync.New(redsyncgoredis.NewPool(client))
	worker := func(_ context.Context, key string) (acquire, error) {
		key = "redsync:" + key
		return func(ctx context.Context) (func(context.Context) error, error) {
			for {
				m := rs.NewMutex(key, redsync.WithExpiry(ttl))
				err := m.LockContext(ctx)
				var taken *redsync.ErrTaken
				if (errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed)) && ctx.Err() == nil {
					continue
				}
				if err != nil {
					return nil, err
				}
				return func(ctx context.Context) error {
					ok, err := m.UnlockContext(ctx)
					if err == nil && !ok {
						err = errors.New("the lock was lost")
					}
					return err
				}, nil
			}
		}, nil
	}
	return &side{worker: worker, close: func() { _ = client.Close() }}, nil
}
