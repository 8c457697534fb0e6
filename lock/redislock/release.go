package redislock

import (
	"context"
	"fmt"

	"github.com/fairlead-dev/fairlead/lock"
)

// Release implements [lock.Backend]. A lock on one key that nobody is in line for is released without a script: with its
// one field the key's hash is gone. Where somebody is in line that field has another name, and a script releases the lock
// and hands it on. Where an answer was lost, and the lock is gone at the next try, Release returns the error of the first:
// nobody knows then whether it was this release that ended the lock.
func (b *Backend) Release(ctx context.Context, g lock.Grant) error {
	if id, key, ok := place(g.ID); ok && len(g.Tokens) == 1 {
		if w, yields := b.next(id, key); w != nil {
			return b.pass(ctx, id, key, w, yields)
		}
	}
	var unknown error
	if len(g.Tokens) == 1 && !g.Waited { // Where one had to wait, others mostly do.
		var released bool
		if released, unknown = b.drop(ctx, g.ID); released {
			return nil
		}
	}
	return b.release(ctx, g.ID, unknown)
}

// drop ends a grant of one key, and reports whether it was there and nobody in line.
func (b *Backend) drop(ctx context.Context, grant string) (bool, error) {
	id, key, ok := place(grant)
	if !ok {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return b.client.HDel(ctx, b.hash(key), id)
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
