package claim_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestLifeOfAClaim(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.add(1)
	one, err := e.claims.Claim(t.Context(), e.pool, 1)
	if err != nil || one.ID != 1 || one.Version != 1 || one.LockID == uuid.Nil || time.Since(one.At) > time.Minute {
		t.Fatalf("%+v, %v", one, err)
	}
	e.want(1, "publishing", 1, true)
	if _, err := e.claims.Claim(t.Context(), e.pool, 1); !errors.Is(err, claim.ErrNotClaimable) {
		t.Errorf("a second claim: %v", err)
	}
	if lost, err := e.claims.Heartbeat(t.Context(), e.pool, one); err != nil || len(lost) != 0 {
		t.Errorf("heartbeat: %v, %v", lost, err)
	}
	// Neither another lock id nor another version ends it.
	forged, old := one, one
	forged.LockID = uuid.New()
	old.Version = 0
	for _, wrong := range []claim.Claim[int64]{forged, old} {
		if err := e.claims.Finish(t.Context(), e.pool, wrong, nil); !errors.Is(err, claim.ErrLost) {
			t.Errorf("finish under a claim that is not: %v", err)
		}
		if lost, err := e.claims.Heartbeat(t.Context(), e.pool, wrong); err != nil || len(lost) != 1 {
			t.Errorf("heartbeat under a claim that is not: %v, %v", lost, err)
		}
	}
	e.want(1, "publishing", 1, true)
	if err := e.claims.Fail(t.Context(), e.pool, one, claim.Changes{"note": "no luck", "status": "scheduled"}); err == nil {
		t.Error("two assignments of one column were taken")
	}
	testwait.Check(t, e.claims.Fail(t.Context(), e.pool, one, claim.Changes{"note": "no luck"}))
	e.want(1, "failed", 1, false)
	if err := e.claims.Finish(t.Context(), e.pool, one, nil); !errors.Is(err, claim.ErrLost) {
		t.Errorf("a claim that has ended ended again: %v", err)
	}
	e.exec(`UPDATE app."Posts" SET status = 'scheduled'`)
	two, err := e.claims.Claim(t.Context(), e.pool, 1)
	if err != nil || two.Version != 2 || two.LockID == one.LockID {
		t.Fatalf("%+v, %v", two, err)
	}
	testwait.Check(t, e.claims.Finish(t.Context(), e.pool, two, claim.Changes{"note": "done"}))
	e.want(1, "published", 2, false)
}

func TestStaleClaim(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.add(2)
	old, err := e.claims.Claim(t.Context(), e.pool, 1)
	testwait.Must(t, err)
	if released, err := e.claims.ReleaseStale(t.Context(), e.pool, time.Hour, 10); err != nil || len(released) != 0 {
		t.Fatalf("a fresh claim was released: %v, %v", released, err)
	}
	e.exec(`UPDATE app."Posts" SET locked = locked - interval '2 hours' WHERE post = 1`)
	// A heartbeat in time keeps even a claim that is old.
	if lost, err := e.claims.Heartbeat(t.Context(), e.pool, old); err != nil || len(lost) != 0 {
		t.Fatalf("%v, %v", lost, err)
	}
	if released, err := e.claims.ReleaseStale(t.Context(), e.pool, time.Hour, 10); err != nil || len(released) != 0 {
		t.Fatalf("released in spite of its heartbeat: %v, %v", released, err)
	}
	e.exec(`UPDATE app."Posts" SET locked = locked - interval '2 hours' WHERE post = 1`)
	released, err := e.claims.ReleaseStale(t.Context(), e.pool, time.Hour, 10)
	if err != nil || len(released) != 1 || released[0].ID != 1 || released[0].LockID != old.LockID || released[0].Version != 1 {
		t.Fatalf("%+v, %v", released, err)
	}
	e.want(1, "scheduled", 1, false)
	if err := e.claims.Finish(t.Context(), e.pool, old, nil); !errors.Is(err, claim.ErrLost) {
		t.Errorf("finished after it was released: %v", err)
	}
	again, err := e.claims.Claim(t.Context(), e.pool, 1)
	testwait.Must(t, err)
	if err := e.claims.Finish(t.Context(), e.pool, old, nil); !errors.Is(err, claim.ErrLost) {
		t.Errorf("finished under another's claim: %v", err)
	}
	if lost, err := e.claims.Heartbeat(t.Context(), e.pool, old, again); err != nil || len(lost) != 1 || lost[0] != old {
		t.Errorf("lost %v, %v", lost, err)
	}
	if lost, err := e.claims.FinishAll(t.Context(), e.pool, old, again); err != nil || len(lost) != 1 || lost[0] != old {
		t.Errorf("lost %v, %v", lost, err)
	}
	e.want(1, "published", 2, false)
}

// TestClaimMadeByAClockThatWasAhead: it goes stale an age after the first sweep that meets it, and not as late as that clock said.
func TestClaimMadeByAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.add(2)
	dead, err := e.claims.Claim(t.Context(), e.pool, 1)
	testwait.Must(t, err)
	e.exec(`UPDATE app."Posts" SET locked = locked + interval '1 hour' WHERE post = 1`)
	testwait.Eventually(t, time.Minute, "the claim is released", func() bool {
		released, err := e.claims.ReleaseStale(t.Context(), e.pool, 100*time.Millisecond, 10)
		testwait.Must(t, err)
		return len(released) == 1 && released[0].LockID == dead.LockID
	})
	e.want(1, "scheduled", 1, false)
}

// TestLimit holds ClaimDue to its limit whatever plan the statement gets, as on a table without statistics.
func TestLimit(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.add(50)
	for _, limit := range []int{0, 1, 7} {
		if got, err := e.claims.ClaimDue(t.Context(), e.pool, limit); err != nil || len(got) != limit {
			t.Errorf("claimed %d of %d: %v", len(got), limit, err)
		}
	}
}

func TestDueByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.add(3)
	e.exec(`UPDATE app."Posts" SET publish_at = clock_timestamp() + interval '1 hour' WHERE post = 1`)
	e.exec(`UPDATE app."Posts" SET publish_at = clock_timestamp() - interval '1 hour' WHERE post = 3`)
	if _, err := e.claims.Claim(t.Context(), e.pool, 1); !errors.Is(err, claim.ErrNotClaimable) {
		t.Errorf("claimed before it was due: %v", err)
	}
	got, err := e.claims.ClaimDue(t.Context(), e.pool, 1)
	if err != nil || len(got) != 1 || got[0].ID != 3 {
		t.Fatalf("the one that is due for longest: %+v, %v", got, err)
	}
	if found, err := e.claims.Claimed(t.Context(), e.pool, got[0].LockID); err != nil || len(found) != 1 || found[0].ID != got[0].ID || found[0].LockID != got[0].LockID || found[0].Version != got[0].Version || !found[0].At.Equal(got[0].At) {
		t.Errorf("%+v, %v", found, err)
	}
	if got, err = e.claims.ClaimDue(t.Context(), e.pool, 10); err != nil || len(got) != 1 || got[0].ID != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if got, err = e.claims.ClaimDue(t.Context(), e.pool, 10); err != nil || len(got) != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
}

// TestWorkersRace lets workers claim and finish the rows of one table: each row once, and no claim shared.
func TestWorkersRace(t *testing.T) {
	t.Parallel()
	const rows, workers = 600, 6
	e := newEnv(t)
	e.add(rows)
	var (
		mu   sync.Mutex
		done = map[int64]int{}
		wg   sync.WaitGroup
	)
	for range workers {
		wg.Go(func() {
			for {
				got, err := e.claims.ClaimDue(t.Context(), e.pool, 7)
				if err != nil {
					t.Error(err)
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
				if lost, err := e.claims.FinishAll(t.Context(), e.pool, got...); err != nil || len(lost) != 0 {
					t.Errorf("%v, %v", lost, err)
				}
			}
		})
	}
	wg.Wait()
	if len(done) != rows {
		t.Errorf("%d of %d rows were claimed", len(done), rows)
	}
	for id, n := range done {
		if n != 1 {
			t.Errorf("row %d was claimed %d times", id, n)
		}
	}
	var wrong int
	if err := e.pool.QueryRow(t.Context(), `SELECT count(*) FROM app."Posts" WHERE status <> 'published' OR run <> 1 OR "Lock" IS NOT NULL`).Scan(&wrong); err != nil || wrong != 0 {
		t.Errorf("%d rows are not as they should be: %v", wrong, err)
	}
}

// TestCancelledBeforeClaim races a cancellation against a claim: exactly one of the two has it.
func TestCancelledBeforeClaim(t *testing.T) {
	t.Parallel()
	const rounds = 200
	e := newEnv(t)
	e.add(rounds)
	var claimed, cancelled int
	for i := range int64(rounds) {
		var (
			wg   sync.WaitGroup
			mine bool
			gone bool
		)
		wg.Go(func() {
			_, err := e.claims.Claim(t.Context(), e.pool, i+1)
			if mine = err == nil; err != nil && !errors.Is(err, claim.ErrNotClaimable) {
				t.Error(err)
			}
		})
		wg.Go(func() {
			tag, err := e.pool.Exec(t.Context(), `UPDATE app."Posts" SET status = 'cancelled' WHERE post = $1 AND status = 'scheduled'`, i+1)
			if gone = tag.RowsAffected() == 1; err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if mine == gone {
			t.Fatalf("round %d: claimed %v, cancelled %v", i, mine, gone)
		}
		if mine {
			claimed++
		} else {
			cancelled++
		}
	}
	t.Logf("%d claimed, %d cancelled", claimed, cancelled)
}

func TestFinishInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.add(1)
	c, err := e.claims.Claim(t.Context(), e.pool, 1)
	testwait.Must(t, err)
	tx, err := e.pool.Begin(t.Context())
	testwait.Must(t, err)
	testwait.Check(t, e.claims.Finish(t.Context(), tx, c, nil))
	testwait.Must(t, tx.Rollback(t.Context()))
	e.want(1, "publishing", 1, true)
	// While another transaction holds the row, nobody waits for it.
	e.exec(`UPDATE app."Posts" SET status = 'scheduled', "Lock" = NULL`)
	tx, err = e.pool.Begin(t.Context())
	testwait.Must(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	testwait.Must(t, testwait.Err(tx.Exec(t.Context(), `SELECT FROM app."Posts" FOR UPDATE`)))
	if _, err := e.claims.Claim(t.Context(), e.pool, 1); !errors.Is(err, claim.ErrNotClaimable) {
		t.Errorf("claimed under another's lock: %v", err)
	}
}

func TestBadTables(t *testing.T) {
	t.Parallel()
	for i, bad := range []claim.Table{
		{},
		{Name: "t", LockID: "id"},
		{Name: "t", Version: "execution_lock_id"},
		{Name: "t", LockIDType: "bigint"},
		{Name: "t", TimeType: "date"},
		{Name: "t", TimeType: "timestamp(7)"},
		{Name: "t", TimeType: "timestamp("},
		{Name: "t", LockIDType: "text", FinishedBy: "id"},
	} {
		if _, err := claim.New[int64](bad); !errors.Is(err, claim.ErrBadTable) {
			t.Errorf("%d: %v", i, err)
		}
	}
	type odd struct{ A int }
	if _, err := claim.New[odd](claim.Table{Name: "t"}); !errors.Is(err, claim.ErrBadTable) {
		t.Errorf("an id of unknown type: %v", err)
	}
	testwait.Check(t, testwait.Err(claim.New[odd](claim.Table{Name: "t", IDType: "pair"})))
}

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
		for _, claims := range [][]claim.Claim[int64]{got, backwards, got, backwards} {
			wg.Go(func() {
				<-start
				if lost, err := e.claims.Heartbeat(t.Context(), e.pool, claims...); err != nil || len(lost) != 0 && len(lost) != rows {
					t.Errorf("round %d: %d lost, %v", round, len(lost), err)
				}
			})
		}
		wg.Go(func() {
			<-start
			if lost, err := e.claims.FinishAll(t.Context(), e.pool, backwards...); err != nil || len(lost) != 0 {
				t.Errorf("round %d: %d lost, %v", round, len(lost), err)
			}
		})
		close(start)
		wg.Wait()
		e.exec(`UPDATE app."Posts" SET status = 'scheduled'`)
	}
}
