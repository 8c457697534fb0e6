package server

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// TestIntegrityTakesTooLong: a check that takes longer than a request may ends with an answer that says so, and one that its caller leaves
// or that fails by itself does not.
func TestIntegrityTakesTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newBound("test", 1, 1, 0, newHTTPMetrics(prometheus.NewRegistry()))
		hangs := func(ctx context.Context) (ledger.Integrity, error) {
			<-ctx.Done()
			return ledger.Integrity{}, fmt.Errorf("a query: %w", ctx.Err())
		}
		began := time.Now()
		_, err := countInTime(t.Context(), turns, hangs)
		if !errors.Is(err, errNotCounted) || time.Since(began) != integrityTimeout {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		left, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, err := countInTime(left, turns, hangs); err == nil || errors.Is(err, errNotCounted) {
			t.Errorf("a caller that left: %v", err)
		}
		fails := func(context.Context) (ledger.Integrity, error) { return ledger.Integrity{}, errors.ErrUnsupported }
		if _, err := countInTime(t.Context(), turns, fails); !errors.Is(err, errors.ErrUnsupported) || errors.Is(err, errNotCounted) {
			t.Errorf("a check that fails: %v", err)
		}
	})
}
