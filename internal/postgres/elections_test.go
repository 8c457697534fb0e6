package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

const longTerm = time.Minute

func newElections(t *testing.T, db *DB) *Elections {
	t.Helper()
	e, err := NewElections(db)
	testwait.Must(t, err)
	t.Cleanup(func() { closing(t, e.Close) })
	return e
}

func candidate() lock.Request {
	return lock.Request{ID: uuid.NewString(), Owner: "somebody", Keys: []string{"auctions"}, TTL: longTerm}
}

// elect takes the auctions' lead for a minute, and returns what renews it and expects the same term.
func elect(t *testing.T, db *DB) (e *Elections, g lock.Grant, renewed func(context.Context) error) {
	t.Helper()
	e = newElections(t, db)
	g, err := e.Acquire(t.Context(), candidate())
	testwait.Must(t, err)
	return e, g, func(ctx context.Context) error {
		again, err := e.Renew(ctx, g.ID, longTerm)
		if err == nil && again.Tokens["auctions"] != g.Tokens["auctions"] {
			t.Errorf("renewed %+v as %+v", g, again)
		}
		return err
	}
}

// TestTermsGoOnFromLeases upgrades a database whose leaders were elected by the table of leases, and refuses to where it can't.
func TestTermsGoOnFromLeases(t *testing.T) {
	t.Parallel()
	url := leased(t)
	if err := migrated(t.Context(), pgtest.Without(t, url, pgkit.Functions)); err == nil || !strings.Contains(err.Error(), "leases_need_functions_to_go_on") {
		t.Errorf("without functions: %v", err)
	}
	pgtest.Needs(t, pgkit.Functions)
	for range 2 { // The second time changes nothing.
		testwait.Must(t, migrated(t.Context(), url))
	}
	if _, g, _ := elect(t, open(t, Options{URL: url})); g.Tokens["auctions"] != 42 {
		t.Errorf("the first term is %d", g.Tokens["auctions"])
	}
}

// leased is a database of the time of leases. One has the 41st term.
func leased(t *testing.T) string {
	t.Helper()
	return pgtest.NewDatabase(t, func(ctx context.Context, url string) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		const lease = `INSERT INTO public.leases (name, holder, term, expires_at) VALUES ('auctions', 'an older server', 41, now() + interval '1 hour')`
		_, err = conn.Exec(ctx, step20+lease, pgx.QueryExecModeSimpleProtocol)
		return errors.Join(err, conn.Close(ctx))
	})
}

// TestElectionsElsewhere elects the leaders of an installation in the schema that it names, and makes no other for that.
func TestElectionsElsewhere(t *testing.T) {
	t.Parallel()
	const named = "elected here"
	db := open(t, Options{URL: pgtest.NewDatabase(t, nil), ElectionSchema: named})
	for range 2 {
		testwait.Must(t, testwait.Err(db.Migrate(t.Context(), nil)))
	}
	if _, g, _ := elect(t, db); g.Tokens["auctions"] != 1 {
		t.Errorf("the first term is %d", g.Tokens["auctions"])
	}
	const schemas = `SELECT array_agg(nspname::text ORDER BY nspname) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE relname = 'lock_keys'`
	if got := ask[[]string](t, db, schemas); !slices.Equal(got, []string{named, "public"}) {
		t.Errorf("locks are in %q", got)
	}
	testwait.Check(t, testwait.Err(db.AdvanceTokens(t.Context())))
}

func TestADrainedPoolCostsNoTerm(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t), MaxConns: 1})
	held, err := db.pool.Acquire(t.Context())
	testwait.Must(t, err)
	defer held.Release()
	e, g, renewed := elect(t, db)
	testwait.Check(t, errors.Join(renewed(t.Context()), e.Release(t.Context(), g)))
	if err := renewed(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("renewed what was resigned: %v", err)
	}
}

func TestALockedLeaseFailsInTime(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	_, _, renewed := elect(t, db)
	tx, err := sessionOf(t, db).Begin(t.Context())
	testwait.Must(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	testwait.Must(t, testwait.Err(tx.Exec(t.Context(), `SELECT FROM fairlead_elections.lock_grants FOR UPDATE`)))
	ctx, cancel := context.WithTimeout(t.Context(), 2*electionLockTimeout)
	defer cancel()
	if err := renewed(ctx); !errors.Is(err, command.ErrUnavailable) {
		t.Errorf("a renewal of a locked row: %v", err)
	}
	testwait.Check(t, errors.Join(tx.Rollback(t.Context()), renewed(t.Context())))
}

// TestAFrozenServerCannotHangATerm stops the server's processes that serve the elections, and goes on by others.
func TestAFrozenServerCannotHangATerm(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	_, _, renewed := elect(t, db)
	pid := ask[int](t, db, `SELECT pid FROM pg_stat_activity WHERE application_name = 'fairlead elections' AND datname = current_database()`)
	testwait.Must(t, syscall.Kill(pid, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // It may have ended.
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := renewed(ctx); !errors.Is(err, command.ErrUnavailable) {
		t.Errorf("a renewal: %v", err)
	}
	testwait.Check(t, renewed(testwait.Context(t, patience)))
}
