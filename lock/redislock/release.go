package redislock

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/lock"
)

// Release implements [lock.Backend]. Where an answer was lost, and the lock is gone when it is asked again, it returns
// the error of the first try: nobody knows then whether it was this release that ended the lock.
func (b *Backend) Release(ctx context.Context, id string) error {
	return b.release(ctx, nil, id, b.process)
}

// ReleaseGrant implements [lock.GrantReleaser]. A lock on one key that nobody is in line for is released without a
// script: with its one field the key's hash is gone. If the hash is there still, somebody came into line meanwhile, and a
// script hands the key on; if this process dies before, those in line find the key free when they next look.
func (b *Backend) ReleaseGrant(ctx context.Context, g lock.Grant) error {
	if len(g.Tokens) != 1 || g.Waited { // Where one had to wait, others mostly do.
		return b.Release(ctx, g.ID)
	}
	var key string
	for key = range g.Tokens {
	}
	released, end, err := b.drop(ctx, g.ID, key)
	switch {
	case err != nil:
		return b.release(ctx, err, g.ID, b.process, key)
	case !released:
		return lock.ErrLost
	case end == "":
		return nil
	}
	var a answer
	if err := persist(ctx, func(bool) (err error) {
		a, err = b.ask(ctx, b.scripts.handOn, g.ID, b.process, key, end)
		return err
	}); err != nil {
		return fmt.Errorf("redislock: release: hand on: %w", err)
	}
	if a.status != statusRefused {
		return lock.ErrLost
	}
	return nil
}

// drop ends a grant of one key. It reports whether it was there still, and when its lease ends, if somebody is in line.
func (b *Backend) drop(ctx context.Context, id, key string) (released bool, end string, err error) {
	ctx, cancel := b.soon(ctx)
	defer cancel()
	hash, held, build := b.state[0]+":h:"+key, b.state[0]+":held", b.client.B()
	answers := b.client.DoMulti(ctx,
		build.Hdel().Key(hash).Field(id).Build(), build.Hget().Key(hash).Field("").Build(), build.Hdel().Key(held).Field(id).Build(),
	)
	if released, err = answers[0].AsBool(); err != nil {
		return false, "", err
	}
	if end, err = answers[1].ToString(); err != nil && !rueidis.IsRedisNil(err) {
		return false, "", err
	}
	unnoticed, err := answers[2].AsInt64()
	if err != nil {
		return false, "", err
	}
	if !released {
		b.expired(unnoticed)
	}
	return released, end, nil
}

// release runs the script, with the grant's id, the process, and a key whose line is to be looked at in any case. unknown is
// what an earlier try failed with that may have released the lock.
func (b *Backend) release(ctx context.Context, unknown error, args ...string) error {
	var a answer
	if err := persist(ctx, func(bool) (err error) {
		a, err = b.ask(ctx, b.scripts.release, args[0], args...)
		if err != nil && unknown == nil {
			unknown = err
		}
		return err
	}); err != nil {
		return fmt.Errorf("redislock: release: %w", err)
	}
	switch {
	case a.status == statusRefused:
		return nil
	case unknown != nil:
		return fmt.Errorf("redislock: release: %w", unknown)
	}
	return lock.ErrLost
}
