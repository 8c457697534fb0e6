package claim_test

import (
	"slices"
	"sync"
	"testing"
)

// TestNoDeadlock lets a worker's heartbeats meet the ends of the same claims, in opposing orders.
func TestNoDeadlock(t *testing.T) {
	t.Parallel()
	const rows, rounds = 400, 12
	e := newEnv(t)
	e.add(rows)
	for round := range rounds {
		got, err := e.claims.ClaimDue(t.Context(), e.pool, rows)
		if err != nil || len(got) != rows {
			t.Fatalf("claimed %d: %v", len(got), err)
		}
		backwards := slices.Clone(got)
		slices.Reverse(backwards)
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range 4 {
			wg.Go(func() {
				<-start
				claims := got
				if i%2 == 1 {
					claims = backwards
				}
				if lost, err := e.claims.Heartbeat(t.Context(), e.pool, claims...); err != nil || len(lost) != 0 && len(lost) != rows {
					t.Errorf("round %d: %d lost, %v", round, len(lost), err)
				}
			})
		}
		wg.Go(func() {
			<-start
			if lost, err := e.claims.FailAll(t.Context(), e.pool, backwards...); err != nil || len(lost) != 0 {
				t.Errorf("round %d: %d lost, %v", round, len(lost), err)
			}
		})
		close(start)
		wg.Wait()
		e.exec(`UPDATE app."Posts" SET status = 'scheduled'`)
	}
}
