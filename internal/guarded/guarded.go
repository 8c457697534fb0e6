// Package guarded has writes that are guarded by a fencing token, each in one step of Redis or etcd, as a user of locks there writes them.
// PostgreSQL has pglock.Fence for that.
package guarded

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fairlead-dev/fairlead/internal/rediskit"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/redisclient"
)

const script = `
local seen = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
if tonumber(ARGV[1]) < seen then return 0 end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[1])
return 1`

// Redis writes to a key unless it has seen a newer token: that is [lock.ErrStaleToken].
func Redis(ctx context.Context, c redisclient.Client, key string, token int64) error {
	n, err := rediskit.NewScript(script).Run(ctx, c, []string{key}, []string{strconv.FormatInt(token, 10)})
	if err == nil && n == int64(0) {
		return lock.ErrStaleToken
	}
	return err
}

// Etcd writes to a key unless it has seen a newer token: that is [lock.ErrStaleToken].
func Etcd(ctx context.Context, c *clientv3.Client, key string, token int64) error {
	value := fmt.Sprintf("%020d", token)
	absent := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	made, err := c.Txn(ctx).If(absent).Then(clientv3.OpPut(key, value)).Commit()
	if err != nil || made.Succeeded {
		return err
	}
	older := clientv3.Compare(clientv3.Value(key), "<", fmt.Sprintf("%020d", token+1))
	done, err := c.Txn(ctx).If(older).Then(clientv3.OpPut(key, value)).Commit()
	if err == nil && !done.Succeeded {
		err = lock.ErrStaleToken
	}
	return err
}
