package claim_test

import (
	"context"
	"errors"
	"testing"
	"time"

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
