package server

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestBoundRests looks at a bound whose places rest: as many times as long as a read took the place nobody has it, and a read
// that hung is not waited for again.
func TestBoundRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBound("test", 1, 2, 3, newHTTPMetrics(prometheus.NewRegistry()))
		for _, c := range []struct{ took, rests time.Duration }{{0, 0}, {time.Millisecond, 3 * time.Millisecond}, {time.Minute, longestRest}} {
			leave, err := b.enter(t.Context())
			must(t, err)
			time.Sleep(c.took)
			leave()
			leave() // It may be called again.
			left := time.Now()
			leave, err = b.enter(t.Context())
			must(t, err)
			if rested := time.Since(left); rested != c.rests {
				t.Errorf("after %v the place rested for %v, want %v", c.took, rested, c.rests)
			}
			leave()
			synctest.Wait()
		}
	})
}

// TestBoundRefuses looks at who is refused: those beyond the queue at once, and those in it who waited for too long.
func TestBoundRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBound("test", 1, 1, 0, newHTTPMetrics(prometheus.NewRegistry()))
		leave, err := b.enter(t.Context())
		must(t, err)
		waited := make(chan error)
		began := time.Now()
		go func() {
			_, err := b.enter(t.Context())
			waited <- err
		}()
		synctest.Wait()
		if _, err := b.enter(t.Context()); !isRefusal(err) || time.Since(began) != 0 {
			t.Errorf("one more than may wait: %v after %v", err, time.Since(began))
		}
		if err := <-waited; !isRefusal(err) || time.Since(began) != boundPatience {
			t.Errorf("one that waits: %v after %v", err, time.Since(began))
		}
		leave()
		leave, err = b.enter(t.Context())
		must(t, err)
		leave()
	})
}

func isRefusal(err error) bool {
	_, ok := errors.AsType[*refusal](err)
	return ok
}
