package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// TestStoppedHolderIsTold: a process that was stopped past its lease is never told that it holds the lock.
func TestStoppedHolderIsTold(t *testing.T) {
	const ttl = 300 * time.Millisecond
	for name, o := range map[string]lock.Options{
		"lease":        {TTL: ttl, NoRenewal: true},
		"maximum hold": {TTL: time.Hour, MaxHold: ttl},
	} {
		t.Run(name, func(t *testing.T) {
			testwait.Stopped(t, ttl, func() (context.Context, time.Time) {
				h, err := lock.New(newMemory(), lock.LockerOptions{}).Acquire(t.Context(), []string{"k"}, o)
				testwait.Must(t, err)
				return h.Context(), time.Now().Add(ttl)
			})
		})
	}
}
