package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/redislock"
)

// patient gives its index, but waits at one step for the end of its context.
type patient struct{ n, waitAt int }

func (p patient) Count() int { return p.n }

func (p patient) Do(ctx context.Context, i int) (int, error) {
	if i == p.waitAt {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return i, nil
}

func waiting(at int) checkpoint.Definition[int, int] {
	return checkpoint.Definition[int, int]{
		Name: "patient",
		Open: func(n int, _ checkpoint.Seed) (checkpoint.Steps[int], error) { return patient{n, at}, nil },
	}
}

// TestLockIsLost lets the lease of a run end under it: the run ends with the lock, and the next one has a greater token.
func TestLockIsLost(t *testing.T) {
	t.Parallel()
	client := testredis.Rueidis.Open(t, testredis.Start(t).Addr())
	backend, err := redislock.New(client, redislock.Options{})
	testwait.Must(t, err)
	t.Cleanup(backend.Close)
	locks := lock.New(backend, lock.LockerOptions{})
	key := checkpoint.Key{LockKey: "k", ID: "op"}
	r, err := checkpoint.New(waiting(3), New(client), locks, checkpoint.Options{Lock: lock.Options{TTL: 2 * time.Second, NoRenewal: true}})
	testwait.Must(t, err)
	res, err := r.Run(t.Context(), key, 6, checkpoint.Call{})
	// A machine that is too slow for three steps within the lease loses it before.
	if !errors.Is(err, lock.ErrUnrenewed) || checkpoint.SeverityOf(err) != checkpoint.SeverityTransient || res == nil || res.Completed > 3 {
		t.Fatalf("%+v, %v", res, err)
	}
	before, err := r.Load(t.Context(), key)
	testwait.Must(t, err)
	if len(before.Errors) != 0 || before.Token < 1 {
		t.Errorf("%+v", before)
	}
	held, err := locks.Acquire(t.Context(), []string{"k", "other"}, lock.Options{Wait: lock.Forever})
	testwait.Must(t, err)
	whole, err := checkpoint.New(waiting(-1), New(client), locks, checkpoint.Options{})
	testwait.Must(t, err)
	if _, err := whole.Resume(t.Context(), key, checkpoint.Call{}); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("while the lock is held by another: %v", err)
	}
	testwait.Must(t, held.Release(t.Context()))
	res, err = whole.Resume(t.Context(), key, checkpoint.Call{})
	if err != nil || res.Completed != 6 || res.Results[5] != 5 {
		t.Fatalf("%+v, %v", res, err)
	}
	after, err := whole.Load(t.Context(), key)
	if err != nil || after.Token <= held.Token("k") || held.Token("k") <= before.Token {
		t.Errorf("token %d after %d, %v", after.Token, before.Token, err)
	}
}
