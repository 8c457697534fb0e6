package claimtest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func (s *suite) life() {
	s.add(1)
	one, err := s.claims.Claim(s.Context(), s.pool, 1)
	if err != nil || one.ID != 1 || one.Version != 1 || one.LockID == uuid.Nil || time.Since(one.At) > time.Minute {
		s.Fatalf("%+v, %v", one, err)
	}
	s.want("publishing", 1, true)
	if _, err := s.claims.Claim(s.Context(), s.pool, 1); !errors.Is(err, claim.ErrNotClaimable) {
		s.Errorf("a second claim: %v", err)
	}
	if lost, err := s.claims.Heartbeat(s.Context(), s.pool, one); err != nil || len(lost) != 0 {
		s.Errorf("heartbeat: %v, %v", lost, err)
	}
	// Neither another lock id nor another version ends it.
	forged, old := one, one
	forged.LockID = uuid.New()
	old.Version = 0
	for _, wrong := range []claim.Claim[int64]{forged, old} {
		if err := s.claims.Finish(s.Context(), s.pool, wrong, nil); !errors.Is(err, claim.ErrLost) {
			s.Errorf("finish under a claim that is not: %v", err)
		}
		if lost, err := s.claims.Heartbeat(s.Context(), s.pool, wrong); err != nil || len(lost) != 1 {
			s.Errorf("heartbeat under a claim that is not: %v, %v", lost, err)
		}
	}
	s.want("publishing", 1, true)
	if err := s.claims.Fail(s.Context(), s.pool, one, claim.Changes{"note": "no luck", "status": "scheduled"}); err == nil {
		s.Error("two assignments of one column were taken")
	}
	testwait.Check(s, s.claims.Fail(s.Context(), s.pool, one, claim.Changes{"note": "no luck"}))
	s.want("failed", 1, false)
	if err := s.claims.Finish(s.Context(), s.pool, one, nil); !errors.Is(err, claim.ErrLost) {
		s.Errorf("a claim that has ended ended again: %v", err)
	}
	s.exec(s.sql(`UPDATE @ SET status = 'scheduled'`))
	two, err := s.claims.Claim(s.Context(), s.pool, 1)
	if err != nil || two.Version != 2 || two.LockID == one.LockID {
		s.Fatalf("%+v, %v", two, err)
	}
	testwait.Check(s, s.claims.Finish(s.Context(), s.pool, two, claim.Changes{"note": "done"}))
	s.want("published", 2, false)
}

func (s *suite) stale() {
	s.add(2)
	old, err := s.claims.Claim(s.Context(), s.pool, 1)
	testwait.Must(s, err)
	if released, err := s.claims.ReleaseStale(s.Context(), s.pool, time.Hour, 10); err != nil || len(released) != 0 {
		s.Fatalf("a fresh claim was released: %v, %v", released, err)
	}
	s.exec(s.sql(`UPDATE @ SET locked = locked - interval '2 hours' WHERE post = 1`))
	// A heartbeat in time keeps even a claim that is old.
	if lost, err := s.claims.Heartbeat(s.Context(), s.pool, old); err != nil || len(lost) != 0 {
		s.Fatalf("%v, %v", lost, err)
	}
	if released, err := s.claims.ReleaseStale(s.Context(), s.pool, time.Hour, 10); err != nil || len(released) != 0 {
		s.Fatalf("released in spite of its heartbeat: %v, %v", released, err)
	}
	s.exec(s.sql(`UPDATE @ SET locked = locked - interval '2 hours' WHERE post = 1`))
	released, err := s.claims.ReleaseStale(s.Context(), s.pool, time.Hour, 10)
	if err != nil || len(released) != 1 || released[0].ID != 1 || released[0].LockID != old.LockID || released[0].Version != 1 {
		s.Fatalf("%+v, %v", released, err)
	}
	s.want("scheduled", 1, false)
	if err := s.claims.Finish(s.Context(), s.pool, old, nil); !errors.Is(err, claim.ErrLost) {
		s.Errorf("finished after it was released: %v", err)
	}
	again, err := s.claims.Claim(s.Context(), s.pool, 1)
	testwait.Must(s, err)
	if err := s.claims.Finish(s.Context(), s.pool, old, nil); !errors.Is(err, claim.ErrLost) {
		s.Errorf("finished under another's claim: %v", err)
	}
	if lost, err := s.claims.Heartbeat(s.Context(), s.pool, old, again); err != nil || len(lost) != 1 || lost[0] != old {
		s.Errorf("lost %v, %v", lost, err)
	}
	if lost, err := s.claims.FinishAll(s.Context(), s.pool, old, again); err != nil || len(lost) != 1 || lost[0] != old {
		s.Errorf("lost %v, %v", lost, err)
	}
	s.want("published", 2, false)
}

// ahead: it goes stale an age after the first sweep that meets it, and not as late as that clock said.
func (s *suite) ahead() {
	s.add(2)
	dead, err := s.claims.Claim(s.Context(), s.pool, 1)
	testwait.Must(s, err)
	s.exec(s.sql(`UPDATE @ SET locked = locked + interval '1 hour' WHERE post = 1`))
	testwait.Eventually(s, testwait.Patience, "the claim is released", func() bool {
		released, err := s.claims.ReleaseStale(s.Context(), s.pool, 100*time.Millisecond, 10)
		testwait.Must(s, err)
		return len(released) == 1 && released[0].LockID == dead.LockID
	})
	s.want("scheduled", 1, false)
}

// limit holds ClaimDue to its limit whatever plan the statement gets, as on a table without statistics.
func (s *suite) limit() {
	s.add(50)
	for _, limit := range []int{0, 1, 7} {
		if got, err := s.claims.ClaimDue(s.Context(), s.pool, limit); err != nil || len(got) != limit {
			s.Errorf("claimed %d of %d: %v", len(got), limit, err)
		}
	}
}

func (s *suite) due() {
	s.add(3)
	s.exec(s.sql(`UPDATE @ SET publish_at = clock_timestamp() + interval '1 hour' WHERE post = 1`))
	s.exec(s.sql(`UPDATE @ SET publish_at = clock_timestamp() - interval '1 hour' WHERE post = 3`))
	if _, err := s.claims.Claim(s.Context(), s.pool, 1); !errors.Is(err, claim.ErrNotClaimable) {
		s.Errorf("claimed before it was due: %v", err)
	}
	got, err := s.claims.ClaimDue(s.Context(), s.pool, 1)
	if err != nil || len(got) != 1 || got[0].ID != 3 {
		s.Fatalf("the one that is due for longest: %+v, %v", got, err)
	}
	if found, err := s.claims.Claimed(s.Context(), s.pool, got[0].LockID); err != nil || len(found) != 1 || found[0].ID != got[0].ID || found[0].LockID != got[0].LockID || found[0].Version != got[0].Version || !found[0].At.Equal(got[0].At) {
		s.Errorf("%+v, %v", found, err)
	}
	if got, err = s.claims.ClaimDue(s.Context(), s.pool, 10); err != nil || len(got) != 1 || got[0].ID != 2 {
		s.Fatalf("%+v, %v", got, err)
	}
	if got, err = s.claims.ClaimDue(s.Context(), s.pool, 10); err != nil || len(got) != 0 {
		s.Fatalf("%+v, %v", got, err)
	}
}

// race lets workers claim and finish the rows of one table: each row once, and no claim shared.
func (s *suite) race() {
	const rows, workers = 600, 6
	s.add(rows)
	var (
		mu   sync.Mutex
		done = map[int64]int{}
		wg   sync.WaitGroup
	)
	for range workers {
		wg.Go(func() {
			for {
				got, err := s.claims.ClaimDue(s.Context(), s.pool, 7)
				if err != nil {
					s.Error(err)
					return
				}
				if len(got) == 0 {
					return
				}
				mu.Lock()
				for _, c := range got {
					done[c.ID]++
				}
				mu.Unlock()
				if lost, err := s.claims.FinishAll(s.Context(), s.pool, got...); err != nil || len(lost) != 0 {
					s.Errorf("%v, %v", lost, err)
				}
			}
		})
	}
	wg.Wait()
	if len(done) != rows {
		s.Errorf("%d of %d rows were claimed", len(done), rows)
	}
	for id, n := range done {
		if n != 1 {
			s.Errorf("row %d was claimed %d times", id, n)
		}
	}
	var wrong int
	if err := s.pool.QueryRow(s.Context(), s.sql(`SELECT count(*) FROM @ WHERE status <> 'published' OR run <> 1 OR "Lock" IS NOT NULL`)).Scan(&wrong); err != nil || wrong != 0 {
		s.Errorf("%d rows are not as they should be: %v", wrong, err)
	}
}

// cancelled races a cancellation against a claim: exactly one of the two has it.
func (s *suite) cancelled() {
	const rounds = 200
	s.add(rounds)
	var claimed, cancelled int
	for i := range int64(rounds) {
		var (
			wg   sync.WaitGroup
			mine bool
			gone bool
		)
		wg.Go(func() {
			_, err := s.claims.Claim(s.Context(), s.pool, i+1)
			if mine = err == nil; err != nil && !errors.Is(err, claim.ErrNotClaimable) {
				s.Error(err)
			}
		})
		wg.Go(func() {
			tag, err := s.pool.Exec(s.Context(), s.sql(`UPDATE @ SET status = 'cancelled' WHERE post = $1 AND status = 'scheduled'`), i+1)
			if gone = tag.RowsAffected() == 1; err != nil {
				s.Error(err)
			}
		})
		wg.Wait()
		if mine == gone {
			s.Fatalf("round %d: claimed %v, cancelled %v", i, mine, gone)
		}
		if mine {
			claimed++
		} else {
			cancelled++
		}
	}
	s.Logf("%d claimed, %d cancelled", claimed, cancelled)
}

func (s *suite) inTransaction() {
	s.add(1)
	c, err := s.claims.Claim(s.Context(), s.pool, 1)
	testwait.Must(s, err)
	tx, err := s.pool.Begin(s.Context())
	testwait.Must(s, err)
	testwait.Check(s, s.claims.Finish(s.Context(), tx, c, nil))
	testwait.Must(s, tx.Rollback(s.Context()))
	s.want("publishing", 1, true)
	// While another transaction holds the row, nobody waits for it.
	s.exec(s.sql(`UPDATE @ SET status = 'scheduled', "Lock" = NULL`))
	tx, err = s.pool.Begin(s.Context())
	testwait.Must(s, err)
	defer func() { _ = tx.Rollback(s.Context()) }()
	testwait.Must(s, testwait.Err(tx.Exec(s.Context(), s.sql(`SELECT FROM @ FOR UPDATE`))))
	if _, err := s.claims.Claim(s.Context(), s.pool, 1); !errors.Is(err, claim.ErrNotClaimable) {
		s.Errorf("claimed under another's lock: %v", err)
	}
}

// noDeadlock lets a worker's heartbeats meet the ends of the same claims, in opposing orders.
func (s *suite) noDeadlock() {
	const rows, rounds = 400, 12
	s.add(rows)
	for round := range rounds {
		got, err := s.claims.ClaimDue(s.Context(), s.pool, rows)
		if err != nil || len(got) != rows {
			s.Fatalf("claimed %d: %v", len(got), err)
		}
		backwards := slices.Clone(got)
		slices.Reverse(backwards)
		var wg sync.WaitGroup
		start := make(chan struct{})
		for _, claims := range [][]claim.Claim[int64]{got, backwards, got, backwards} {
			wg.Go(func() {
				<-start
				if lost, err := s.claims.Heartbeat(s.Context(), s.pool, claims...); err != nil || len(lost) != 0 && len(lost) != rows {
					s.Errorf("round %d: %d lost, %v", round, len(lost), err)
				}
			})
		}
		wg.Go(func() {
			<-start
			if lost, err := s.claims.FinishAll(s.Context(), s.pool, backwards...); err != nil || len(lost) != 0 {
				s.Errorf("round %d: %d lost, %v", round, len(lost), err)
			}
		})
		close(start)
		wg.Wait()
		s.exec(s.sql(`UPDATE @ SET status = 'scheduled'`))
	}
}
