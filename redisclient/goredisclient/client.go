// Package goredisclient lets the packages that keep state in Redis use a client of github.com/redis/go-redis/v9.
//
// go-redis repeats commands whose connection failed (MaxRetries). With this adapter a command is sent once, however the client is
// configured. While a server is silent, a call ends by the client's ReadTimeout (5 s unless set). Set ContextTimeoutEnabled for
// calls that end at their context's deadline. A client with neither, whose ReadTimeout is longer than 5 s or none, gets a goroutine for
// each call, which is left behind when the context ends; near the server that doubles a call's time.
package goredisclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlead-dev/fairlead/redisclient"
)

// longestRead is how long a client's own ReadTimeout may keep a caller whose context has ended.
const longestRead = 5 * time.Second

type client struct {
	redis redis.UniversalClient

	impatient bool // it gives up by itself
	deadlines bool // it heeds the deadlines of contexts
}

// New wraps a client of one server or of what Sentinel watches (redis.Client), or of a cluster (redis.ClusterClient). The caller
// closes it. Do not use a redis.Ring: it moves keys to another server while theirs does not answer, so that two could hold one lock.
func New(c redis.UniversalClient) redisclient.Client {
	var read time.Duration
	w := client{redis: c}
	switch c := c.(type) {
	case *redis.Client:
		read, w.deadlines = c.Options().ReadTimeout, c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		read, w.deadlines = c.Options().ReadTimeout, c.Options().ContextTimeoutEnabled
	}
	w.impatient = read > 0 && read <= longestRead
	return w
}

// once keeps go-redis from executing a command again whose answer was lost.
type once struct{ redis.Cmder }

func (once) NoRetry() bool { return true }

func (c client) Eval(ctx context.Context, script string, keys, args []string) (any, error) {
	return c.script(ctx, "eval", script, keys, args)
}

func (c client) EvalSHA(ctx context.Context, sha1 string, keys, args []string) (any, error) {
	return c.script(ctx, "evalsha", sha1, keys, args)
}

func (c client) script(ctx context.Context, command, script string, keys, args []string) (any, error) {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, command, script, len(keys))
	for _, k := range keys {
		words = append(words, k)
	}
	for _, a := range args {
		words = append(words, a)
	}
	cmd := redis.NewCmd(ctx, words...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3) // A cluster's client asks the server that has this key.
	}
	_, err := c.do(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

func (c client) Get(ctx context.Context, key string) ([]byte, bool, error) {
	cmd := redis.NewStringCmd(ctx, "get", key)
	found, err := c.do(ctx, cmd)
	if err != nil || !found {
		return nil, false, err
	}
	value, err := cmd.Bytes()
	return value, true, err
}

func (c client) Del(ctx context.Context, key string) error {
	_, err := c.do(ctx, redis.NewIntCmd(ctx, "del", key))
	return err
}

func (c client) HDel(ctx context.Context, key, field string) (bool, error) {
	cmd := redis.NewIntCmd(ctx, "hdel", key, field)
	if _, err := c.do(ctx, cmd); err != nil {
		return false, err
	}
	return cmd.Val() == 1, nil
}

func (c client) ConfigGet(ctx context.Context, patterns ...string) (map[string]map[string]string, error) {
	var mu sync.Mutex
	all := map[string]map[string]string{}
	ask := func(ctx context.Context, node redis.UniversalClient, addr string) error {
		for _, p := range patterns { // Before Redis 7 the command takes one pattern.
			settings, err := node.ConfigGet(ctx, p).Result()
			if err != nil {
				return fmt.Errorf("ask %s for its settings: %w", addr, failure(err))
			}
			mu.Lock()
			if all[addr] == nil {
				all[addr] = map[string]string{}
			}
			maps.Copy(all[addr], settings)
			mu.Unlock()
		}
		return nil
	}
	var err error
	switch c := c.redis.(type) {
	case interface {
		ForEachShard(ctx context.Context, f func(context.Context, *redis.Client) error) error
	}:
		err = c.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error { return ask(ctx, node, node.Options().Addr) })
	case *redis.Client:
		err = ask(ctx, c, c.Options().Addr)
	default:
		err = ask(ctx, c, "the server")
	}
	return all, err
}

// do sends a command once, and reports whether the answer is anything but nil. Where it gives up waiting when ctx ends, the command
// may still be written to, and must not be read.
func (c client) do(ctx context.Context, cmd redis.Cmder) (found bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if _, limited := ctx.Deadline(); c.impatient || c.deadlines && limited || ctx.Done() == nil {
		err = c.redis.Process(ctx, once{cmd})
	} else {
		done := make(chan error, 1)
		go func() { done <- c.redis.Process(ctx, once{cmd}) }()
		select {
		case err = <-done:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, failure(err)
}

// failure tells apart what the server answered and what happened on the way.
func failure(err error) error {
	if errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("%w: %w", redisclient.ErrClosed, err)
	}
	if _, answered := errors.AsType[redis.Error](err); answered {
		return &redisclient.ServerError{Err: err}
	}
	return err
}
