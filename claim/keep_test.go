package claim_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/claim"
)

const patience = 30 * time.Second

// TestKeep: heartbeats keep a claim past its age while others sweep, and whoever loses it is told.
func TestKeep(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.add(1)
	one, err := e.claims.Claim(t.Context(), e.pool, 1)
	if err != nil {
		t.Fatal(err)
	}
	const staleAfter = 3 * time.Second
	e.exec(`UPDATE app."Posts" SET locked = locked - interval '1 hour'`)
	working, stop := e.claims.Keep(t.Context(), e.pool, staleAfter, one)
	defer stop()
	for deadline := time.Now().Add(patience); ; { // The first heartbeat comes at once.
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
	sweeper.Go(func() {
		e.claims.KeepReleasing(ctx, e.pool, claim.Sweep{StaleAfter: staleAfter, Every: 50 * time.Millisecond, Failed: func(err error) { t.Error(err) }})
	})
	select {
	case <-working.Done():
		t.Fatalf("lost: %v", context.Cause(working))
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
	end()
	sweeper.Wait()
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
	claims := claim.Must[int64](posts(), claim.Options{})
	const staleAfter = 500 * time.Millisecond
	began := time.Now()
	working, stop := claims.Keep(t.Context(), deaf{}, staleAfter, claim.Claim[int64]{ID: 1})
	defer stop()
	<-working.Done()
	if cause := context.Cause(working); !errors.Is(cause, claim.ErrUnconfirmed) || !errors.Is(cause, claim.ErrLost) {
		t.Errorf("cause %v", cause)
	}
	if took := time.Since(began); took < staleAfter/2 {
		t.Errorf("given up after %s", took)
	}
	working, stop = claims.Keep(t.Context(), deaf{}, time.Hour, claim.Claim[int64]{ID: 1})
	stop()
	if cause := context.Cause(working); !errors.Is(cause, context.Canceled) {
		t.Errorf("stopped: %v", cause)
	}
}

// TestIndexes: the statements claim and sweep by the helper's indexes, on a table of some size.
func TestIndexes(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.add(5000)
	for range 2 { // They may be run again.
		for _, sql := range posts().Indexes() {
			e.exec(sql)
		}
	}
	e.exec(`ANALYZE app."Posts"`)
	for index, sql := range map[string]string{
		"Posts_claimable": `SELECT post FROM app."Posts" WHERE "Lock" IS NULL AND (status LIKE 'schedul%') AND publish_at <= clock_timestamp() ORDER BY publish_at, post LIMIT 10`,
		"Posts_claimed":   `SELECT post FROM app."Posts" WHERE "Lock" IS NOT NULL AND locked < clock_timestamp() - interval '1 hour' ORDER BY locked LIMIT 10`,
	} {
		rows, err := e.pool.Query(t.Context(), "EXPLAIN "+sql)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(lines) < 2 || !strings.Contains(strings.Join(lines, " "), index) {
			t.Errorf("%s is not used: %q, %v", index, lines, err)
		}
	}
	if got, err := e.claims.ClaimDue(t.Context(), e.pool, 10); err != nil || len(got) != 10 {
		t.Errorf("%d, %v", len(got), err)
	}
}
