// Package rueidisclient lets the packages that keep state in Redis use a client of github.com/redis/rueidis.
package rueidisclient

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/redisclient"
)

type client struct{ redis rueidis.Client }

// New wraps a client of one server, of a cluster, or of what Sentinel watches. The caller closes it.
func New(c rueidis.Client) redisclient.Client { return client{c} }

func (c client) Eval(ctx context.Context, script string, keys, args []string) (any, error) {
	return reply(c.redis.Do(ctx, c.redis.B().Eval().Script(script).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()))
}

func (c client) EvalSHA(ctx context.Context, sha1 string, keys, args []string) (any, error) {
	return reply(c.redis.Do(ctx, c.redis.B().Evalsha().Sha1(sha1).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()))
}

func (c client) Get(ctx context.Context, key string) ([]byte, bool, error) {
	value, err := c.redis.Do(ctx, c.redis.B().Get().Key(key).Build()).AsBytes()
	if rueidis.IsRedisNil(err) {
		return nil, false, nil
	}
	return value, err == nil, failure(err)
}

func (c client) Del(ctx context.Context, key string) error {
	return failure(c.redis.Do(ctx, c.redis.B().Del().Key(key).Build()).Error())
}

func (c client) HDel(ctx context.Context, key, field string) (bool, error) {
	deleted, err := c.redis.Do(ctx, c.redis.B().Hdel().Key(key).Field(field).Build()).AsBool()
	return deleted, failure(err)
}

func (c client) Subscribe(ctx context.Context, channel string, subscribed func(), message func(text string)) error {
	conn, release := c.redis.Dedicate()
	defer release()
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" {
			subscribed()
		}
	})
	return failure(conn.Receive(ctx, conn.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) { message(m.Message) }))
}

func (c client) ConfigGet(ctx context.Context, patterns ...string) (map[string]map[string]string, error) {
	all := map[string]map[string]string{}
	for addr, node := range c.redis.Nodes() {
		settings, err := node.Do(ctx, node.B().ConfigGet().Parameter(patterns...).Build()).AsStrMap()
		if err != nil {
			return nil, fmt.Errorf("ask %s for its settings: %w", addr, failure(err))
		}
		all[addr] = settings
	}
	return all, nil
}

func reply(r rueidis.RedisResult) (any, error) {
	value, err := r.ToAny()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	return value, failure(err)
}

// failure tells apart what the server answered and what happened on the way.
func failure(err error) error {
	if errors.Is(err, rueidis.ErrClosing) {
		return fmt.Errorf("%w: %w", redisclient.ErrClosed, err)
	}
	if _, answered := rueidis.IsRedisErr(err); answered {
		return &redisclient.ServerError{Err: err}
	}
	return err
}
