package claim_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

const patience = testwait.Patience

// TestKeep: heartbeats keep a claim past its age while others sweep, and whoever loses it is told. A machine that stalls for as long
// as that loses it, too: then it may be older.
func TestKeep(t *testing.T) {
	t.Parallel()
	for staleAfter := 3 * time.Second; ; staleAfter *= 2 {
		cause := keeps(t, staleAfter)
		if cause == nil {
			break
		}
		if staleAfter > 15*time.Second {
			t.Fatalf("lost: %v", cause)
		}
	}
}

// keeps returns the cause where the claim was lost although heartbeats were sent.
func keeps(t *testing.T, staleAfter time.Duration) error {
	t.Helper()
	e := newEnv(t)
	e.add(1)
	one, err := e.claims.Claim(t.Context(), e.pool, 1)
	testwait.Must(t, err)
	e.exec(`UPDATE app."Posts" SET locked = locked - interval '1 hour'`)
	working, stop := e.claims.Keep(t.Context(), e.pool, staleAfter, one)
	defer stop()
	for deadline := time.Now().Add(patience); working.Err() == nil; { // The first heartbeat comes at once.
		var age time.Duration
		if err := e.pool.QueryRow(t.Context(), `SELECT clock_timestamp() - locked FROM app."Posts"`).Scan(&age); err != nil || time.Now().After(deadline) {
			t.Fatalf("no heartbeat: %v", err)
		}
		if age < time.Minute {
			break
		}
	}
	ctx, end := context.WithCancel(t.Context())
	var sweeper sync.WaitGroup
	defer sweeper.Wait()
	defer end()
	sweeper.Go(func() {
		e.claims.KeepReleasing(ctx, e.pool, claim.Sweep{StaleAfter: staleAfter, Every: 50 * time.Millisecond, Failed: func(err error) { t.Error(err) }})
	})
	select {
	case <-working.Done():
		return context.Cause(working)
	case <-time.After(staleAfter + staleAfter/2):
	}
	e.want(1, "publishing", 1, true)
	// Another takes it all the same, as after a pause that nobody noticed.
	if err := pgx.BeginFunc(t.Context(), e.pool, func(tx pgx.Tx) error { // So that no heartbeat comes between the two.
		if _, err := tx.Exec(t.Context(), `UPDATE app."Posts" SET locked = locked - interval '1 hour'`); err != nil {
			return err
		}
		_, err := e.claims.ReleaseStale(t.Context(), tx, staleAfter, 1)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-working.Done():
	case <-time.After(patience):
		t.Fatal("the worker is not told")
	}
	if cause := context.Cause(working); !errors.Is(cause, claim.ErrLost) || errors.Is(cause, claim.ErrUnconfirmed) {
		t.Errorf("cause %v", cause)
	}
	e.want(1, "scheduled", 1, false)
	return nil
}

// deaf is a database that does not answer.
type deaf struct{}

// Exec implements [claim.DB].
func (deaf) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errors.New("no answer")
}

// Query implements [claim.DB].
func (deaf) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, errors.New("no answer")
}

// TestKeepGivesUp: a worker that can't reach the database stops before its claim can be another's.
func TestKeepGivesUp(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.add(2)
	const staleAfter = 500 * time.Millisecond
	began := time.Now()
	working, stop := e.claims.Keep(t.Context(), deaf{}, staleAfter, e.claim(1))
	defer stop()
	<-working.Done()
	if cause := context.Cause(working); !errors.Is(cause, claim.ErrUnconfirmed) || !errors.Is(cause, claim.ErrLost) {
		t.Errorf("cause %v", cause)
	}
	if took := time.Since(began); took < staleAfter/2 {
		t.Errorf("given up after %s", took)
	}
	working, stop = e.claims.Keep(t.Context(), deaf{}, time.Hour, e.claim(2))
	stop()
	if cause := context.Cause(working); !errors.Is(cause, context.Canceled) {
		t.Errorf("stopped: %v", cause)
	}
}

// TestKeepTrustsNoOldClaim: a claim counts from when it was asked for. One that is too old by then, or whose age this process
// doesn't know, is confirmed by a heartbeat before any work is done under it.
func TestKeepTrustsNoOldClaim(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.add(2)
	old, kept := e.claim(1), e.claim(2)
	claimed := time.Now()
	const staleAfter = 300 * time.Millisecond
	for deadline := time.Now().Add(patience); ; {
		released, err := e.claims.ReleaseStale(t.Context(), e.pool, staleAfter, 1)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("not released: %v", err)
		}
		if len(released) == 1 {
			break
		}
	}
	time.Sleep(staleAfter - time.Since(claimed)) // The second one is younger than the first.
	_ = e.claim(1)                               // Another's.
	unknown := claim.Claim[int64]{ID: kept.ID, LockID: kept.LockID, Version: kept.Version}
	strange := unknown
	strange.LockID = uuid.New()
	for what, c := range map[string]struct {
		db    claim.DB
		claim claim.Claim[int64]
		cause error
	}{
		"another's":                  {e.pool, old, claim.ErrLost},
		"another's, without answers": {deaf{}, old, claim.ErrUnconfirmed},
		"old, without answers":       {deaf{}, kept, claim.ErrUnconfirmed},
		"unknown, without answers":   {deaf{}, unknown, claim.ErrUnconfirmed},
		"unknown and another's":      {e.pool, strange, claim.ErrLost},
	} {
		working, stop := e.claims.Keep(t.Context(), c.db, staleAfter, c.claim)
		if cause := context.Cause(working); !errors.Is(cause, c.cause) {
			t.Errorf("%s: %v, want %v", what, cause, c.cause)
		}
		stop()
	}
	for what, c := range map[string]claim.Claim[int64]{"old, and there": kept, "unknown, and there": unknown} {
		for deadline := time.Now().Add(patience); ; {
			working, stop := e.claims.Keep(t.Context(), e.pool, staleAfter, c)
			cause := context.Cause(working)
			stop()
			if cause == nil {
				break
			}
			if !errors.Is(cause, claim.ErrUnconfirmed) || time.Now().After(deadline) { // The machine may stall.
				t.Fatalf("%s: %v", what, cause)
			}
		}
	}
}

// TestStoppedWorkerIsTold: a worker that was stopped until its claim can be stale is never told that it has it.
func TestStoppedWorkerIsTold(t *testing.T) {
	e := newEnv(t)
	e.add(100)
	const staleAfter = 300 * time.Millisecond
	testwait.Stopped(t, staleAfter, func() (context.Context, time.Time) {
		claims := claim.Must[int64](posts())
		got, err := claims.ClaimDue(t.Context(), e.pool, 1)
		if err != nil || len(got) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
		working, _ := claims.Keep(t.Context(), deaf{}, staleAfter, got[0])
		return working, time.Now().Add(staleAfter)
	})
}
