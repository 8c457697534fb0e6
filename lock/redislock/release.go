package redislock

import (
	"context"
	"fmt"

	"github.com/fairlead-dev/fairlead/lock"
)

// Release implements [lock.Backend]. Where an answer was lost, and the lock is gone when it is asked again, it returns
// the error of the first try: nobody knows then whether it was this release that ended the lock.
func (b *Backend) Release(ctx context.Context, id string) error { return b.release(ctx, id, nil) }

// ReleaseGrant implements [lock.GrantReleaser]. A lock on one key that nobody is in line for is released without a
// script: with its one field the key's hash is gone. Where somebody is in line that field has another name, and a script
// releases the lock and hands it on.
func (b *Backend) ReleaseGrant(ctx context.Context, g lock.Grant) error {
	if len(g.Tokens) != 1 || g.Waited { // Where one had to wait, others mostly do.
		return b.Release(ctx, g.ID)
	}
	released, err := b.drop(ctx, g.ID)
	if released {
		return nil
	}
	return b.release(ctx, g.ID, err)
}

// drop ends a grant of one key, and reports whether it was there and nobody in line.
func (b *Backend) drop(ctx context.Context, grant string) (bool, error) {
	id, key, ok := place(grant)
	if !ok {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return b.client.Do(ctx, b.client.B().Hdel().Key(b.hash(key)).Field(id).Build()).AsBool()
}

// release runs the script. unknown is what an earlier try failed with that may have released the lock.
func (b *Backend) release(ctx context.Context, grant string, unknown error) error {
	id, key, ok := place(grant)
	if !ok {
		return lock.ErrLost
	}
	var a answer
	if err := persist(ctx, func(bool) (err error) {
		a, err = b.ask(ctx, b.scripts.release, grant, id, key, b.process)
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
