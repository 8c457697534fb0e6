package checkpoint_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// hanging is a store that answers no save from one on until it is awake again.
type hanging struct {
	checkpoint.Memory

	asleep bool
	until  time.Time
}

func (h *hanging) Save(ctx context.Context, key checkpoint.Key, s *checkpoint.Save) error {
	return checkpoint.Try(ctx, "save", key, func(error) bool { return true }, func(ctx context.Context) error {
		if h.asleep && time.Now().Before(h.until) {
			<-ctx.Done()
			return ctx.Err()
		}
		return h.Memory.Save(ctx, key, s)
	})
}

// TestStoreHangsAfterAStep: the save after a step is tried as often as any other, and a little longer than its caller waits.
func TestStoreHangsAfterAStep(t *testing.T) {
	t.Parallel()
	const (
		ever    = 24 * time.Hour
		timeout = 5 * time.Second // of one try, and of a save whose caller has given up
	)
	for name, c := range map[string]struct {
		sleeps  time.Duration // from the middle of step 1 on
		giveUp  time.Duration // after which the caller does so, from the same moment; 0: never
		fails   error         // of the step
		want    error
		atLeast time.Duration
		atMost  time.Duration
	}{
		"for ever":                            {sleeps: ever, want: checkpoint.ErrConnection, atLeast: 4 * timeout, atMost: 4*timeout + 10*time.Second},
		"for ever, and the step fails":        {sleeps: ever, fails: errPower, want: checkpoint.ErrConnection, atLeast: 4 * timeout, atMost: 4*timeout + 10*time.Second},
		"for longer than one try":             {sleeps: timeout + time.Second, atLeast: 2 * timeout, atMost: 3 * timeout},
		"until the caller has given up":       {sleeps: ever, giveUp: 7 * time.Second, want: checkpoint.ErrConnection, atLeast: 7*time.Second + timeout, atMost: 7*time.Second + timeout},
		"and the caller has given up already": {sleeps: ever, giveUp: -1, want: checkpoint.ErrConnection, atLeast: timeout, atMost: timeout},
		"and wakes after the caller gave up":  {sleeps: 2 * time.Second, giveUp: time.Second, want: context.Canceled, atLeast: timeout, atMost: timeout + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				store := &hanging{}
				var began time.Time
				r := counting(t, store, 1, func(step int) error {
					if step != 1 {
						return nil
					}
					began = time.Now()
					store.asleep, store.until = true, began.Add(c.sleeps)
					switch {
					case c.giveUp < 0:
						cancel()
					case c.giveUp > 0:
						time.AfterFunc(c.giveUp, cancel)
					}
					return c.fails
				})
				res, err := r.Run(ctx, op, count{N: 3}, checkpoint.Call{})
				took := time.Since(began)
				if !errors.Is(err, c.want) || took < c.atLeast || took > c.atMost {
					t.Errorf("after %s: %v, want %v after %s to %s", took, err, c.want, c.atLeast, c.atMost)
				}
				if errors.Is(c.want, checkpoint.ErrConnection) && (checkpoint.SeverityOf(err) != checkpoint.SeverityTransient || res.Completed != 1 || !res.Partial()) {
					t.Errorf("%s, %+v", checkpoint.SeverityOf(err), res)
				}
				store.asleep = false
				res, err = counting(t, store, 1, nil).Resume(t.Context(), op, checkpoint.Call{})
				testwait.Must(t, err)
				if len(res.Results) != 3 {
					t.Errorf("resumed: %+v", res)
				}
			})
		})
	}
}
