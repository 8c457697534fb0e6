package client_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestLocks(t *testing.T) {
	ctx, c := t.Context(), newClient()
	x, y := uuid.NewString(), uuid.NewString()
	a, err := c.AcquireLock(ctx, client.LockRequest{Keys: []string{x}, Owner: "A", TTL: "10m"})
	testwait.Must(t, err)
	b, err := c.AcquireLock(ctx, client.LockRequest{Keys: []string{y}, Owner: "B", TTL: "10m"})
	testwait.Must(t, err)
	// A lock that is held is an answer, and nothing to be tried again and again.
	var answer client.Answer
	if _, err := c.AcquireLock(ctx, client.LockRequest{Keys: []string{x, y}, Owner: "C", TTL: "10m"}, client.Into(&answer)); client.CodeOf(err) != "lock_held" || answer.Attempts != 1 {
		t.Errorf("%v after %d attempts", err, answer.Attempts)
	}
	renewed, err := c.RenewLock(ctx, a.ID, client.RenewLockRequest{TTL: "1h"})
	if err != nil || renewed.ExpiresAt.Sub(a.ExpiresAt) < 50*time.Minute || renewed.Tokens[x] != a.Tokens[x] {
		t.Errorf("renewed %+v, %v", renewed, err)
	}

	waiting := make(chan error, 1)
	go func() {
		l, err := c.AcquireLock(ctx, client.LockRequest{Keys: []string{y}, Owner: "A", TTL: "10m", Wait: "5m"})
		if err == nil {
			err = c.ReleaseLock(ctx, l.ID)
		}
		waiting <- err
	}()
	testwait.Eventually(t, testwait.Patience, "A waits for B", func() bool {
		all, err := c.Locks(ctx)
		testwait.Must(t, err)
		return slices.ContainsFunc(all.Edges, func(e client.LockEdge) bool { return e.From == "A" && e.To == "B" && e.Key == y })
	})
	_, err = c.AcquireLock(ctx, client.LockRequest{Keys: []string{x}, Owner: "B", TTL: "10m", Wait: "30s"})
	problem, ok := errors.AsType[*client.Problem](err)
	if !ok {
		t.Fatal(err)
	}
	if problem.Code != "deadlock" || !slices.Equal(problem.Cycle, []string{"B", "A"}) {
		t.Errorf("%v, cycle %q", err, problem.Cycle)
	}
	testwait.Must(t, c.ReleaseLock(ctx, b.ID))
	testwait.Check(t, <-waiting)
	if waits, err := c.DatabaseWaits(ctx); err != nil || waits.Waits == nil {
		t.Errorf("database waits %+v, %v", waits, err)
	}
	if err := c.ReleaseLock(ctx, b.ID); client.CodeOf(err) != "lock_lost" {
		t.Errorf("the second release: %v", err)
	}
}
