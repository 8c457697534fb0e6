package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// cutBackend cannot tell what becomes of a release.
type cutBackend struct{ *memory }

var errCut = errors.New("the connection was cut")

func (c cutBackend) Release(context.Context, lock.Grant) error { return errCut }

// TestReleaseOfALossThatIsKnown: what a renewal has said is told, however the release went; what only a clock says is not.
func TestReleaseOfALossThatIsKnown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		noRenewal, lost bool
	}{"a renewal was refused": {lost: true}, "nobody has renewed": {noRenewal: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newMemory()
				l := lock.New(cutBackend{m}, lock.LockerOptions{})
				h, err := l.Acquire(t.Context(), []string{"k"}, lock.Options{NoRenewal: c.noRenewal})
				testwait.Must(t, err)
				if c.lost {
					if err := m.Release(t.Context(), lock.Grant{ID: h.ID()}); err != nil { // As somebody who ends the lock for it.
						t.Fatal(err)
					}
				}
				<-h.Context().Done()
				if err := h.Release(t.Context()); !errors.Is(err, errCut) || errors.Is(err, lock.ErrLost) != c.lost {
					t.Errorf("released: %v", err)
				}
			})
		})
	}
}

// TestCauseOfACancelledWait: a request whose context ends says so, and why.
func TestCauseOfACancelledWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(newMemory(), lock.LockerOptions{})
		h, err := l.Acquire(t.Context(), []string{"k"}, lock.Options{})
		testwait.Must(t, err)
		mine := errors.New("mine")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(mine) })
		if _, err := l.Acquire(ctx, []string{"k"}, lock.Options{Wait: lock.Forever}); !errors.Is(err, mine) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		testwait.Must(t, h.Release(t.Context()))
	})
}
