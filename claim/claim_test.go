package claim_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/claim/claimtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	claimtest.Run(t, func(t *testing.T) claimtest.Harness {
		t.Helper()
		return claimtest.Harness{Pool: newEnv(t).pool, Schema: "app"}
	})
}

// TestModeExec runs the suite as behind an old pooler by transaction, where pgx prepares nothing and knows no SQL types.
func TestModeExec(t *testing.T) {
	t.Parallel()
	t.Run("Suite", func(t *testing.T) {
		t.Parallel()
		claimtest.Run(t, func(t *testing.T) claimtest.Harness {
			t.Helper()
			return claimtest.Harness{Pool: execPool(t), Schema: "app"}
		})
	})
	t.Run("UUID", func(t *testing.T) {
		t.Parallel()
		idsInModeExec(t, uuid.New())
	})
	t.Run("Bytes", func(t *testing.T) {
		t.Parallel()
		idsInModeExec(t, [16]byte(uuid.New()))
	})
}

func execPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	c := newEnv(t).pool.Config()
	c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	testwait.Must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// idsInModeExec claims a row by an id of another type than the suite's, and lets the claim live and end, repeatedly.
func idsInModeExec[ID uuid.UUID | [16]byte](t *testing.T, id ID) {
	t.Helper()
	pool := execPool(t)
	table := claim.Table{Name: "app.by_uuid"}
	for _, sql := range []string{`CREATE TABLE app.by_uuid (id uuid PRIMARY KEY)`, table.DDL()} {
		testwait.Must(t, testwait.Err(pool.Exec(t.Context(), sql)))
	}
	testwait.Must(t, testwait.Err(pool.Exec(t.Context(), `INSERT INTO app.by_uuid VALUES ($1)`, uuid.UUID(id))))
	claims := claim.Must[ID](table)
	one, err := claims.Claim(t.Context(), pool, id)
	testwait.Must(t, err)
	for _, end := range []func(context.Context, claim.DB, ...claim.Claim[ID]) ([]claim.Claim[ID], error){claims.Heartbeat, claims.FinishAll, claims.FinishAll} {
		if lost, err := end(t.Context(), pool, one); err != nil || len(lost) != 0 {
			t.Errorf("lost %v, %v", lost, err)
		}
	}
	testwait.Check(t, claims.Finish(t.Context(), pool, one, nil))
	two, err := claims.Claim(t.Context(), pool, id)
	testwait.Must(t, err)
	testwait.Check(t, claims.Fail(t.Context(), pool, two, nil))
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

// TestOwnColumns: changes can't touch what says whose a row is. Nothing is sent.
func TestOwnColumns(t *testing.T) {
	t.Parallel()
	for _, table := range []claim.Table{{Name: "t"}, {Name: "t", LockID: "a", LockedAt: "b", Version: "c", FinishedBy: "d"}} {
		claims := claim.Must[int64](table)
		for _, column := range []string{
			cmp.Or(table.LockID, "execution_lock_id"), cmp.Or(table.LockedAt, "execution_locked_at"),
			cmp.Or(table.Version, "execution_version"), cmp.Or(table.FinishedBy, "execution_finished_by"),
		} {
			for what, end := range map[string]func(context.Context, claim.DB, claim.Claim[int64], claim.Changes) error{"finish": claims.Finish, "fail": claims.Fail} {
				err := end(t.Context(), deaf{}, claim.Claim[int64]{ID: 1}, claim.Changes{"note": "", column: nil})
				if !errors.Is(err, claim.ErrOwnColumn) || !strings.Contains(err.Error(), column) {
					t.Errorf("%s, %s: %v", what, column, err)
				}
			}
		}
	}
}

// TestStaleTimesArePositive: a time of nothing would release claims that are alive.
func TestStaleTimesArePositive(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.add(1)
	one := e.claim(1)
	for _, age := range []time.Duration{0, -1, -time.Hour, 1, time.Microsecond - 1} {
		if got, err := e.claims.ReleaseStale(t.Context(), e.pool, age, 10); !errors.Is(err, claim.ErrBadAge) || len(got) != 0 {
			t.Errorf("released after %s: %v, %v", age, got, err)
		}
		working, stop := e.claims.Keep(t.Context(), e.pool, age, one)
		if cause := context.Cause(working); !errors.Is(cause, claim.ErrBadAge) {
			t.Errorf("kept for %s: %v", age, cause)
		}
		stop()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, s := range []claim.Sweep{{StaleAfter: -1}, {StaleAfter: 1}, {Every: -1}} {
		var told []error
		s.Failed = func(err error) { told = append(told, err) }
		e.claims.KeepReleasing(ctx, e.pool, s)
		if len(told) != 1 || !errors.Is(told[0], claim.ErrBadAge) {
			t.Errorf("%+v: told %v", s, told)
		}
	}
	e.want(1, "publishing", 1, true)
}
