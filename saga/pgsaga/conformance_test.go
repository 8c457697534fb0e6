package pgsaga_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sagatest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// TestConformance runs the suite on two databases.
func TestConformance(t *testing.T) {
	t.Parallel()
	conform(t, "")
}

// TestModeExec runs the suite as behind an old pooler, where pgx prepares nothing and knows no SQL types, and then what the suite
// leaves out.
func TestModeExec(t *testing.T) {
	t.Parallel()
	const mode = "&default_query_exec_mode=exec"
	t.Run("Suite", func(t *testing.T) {
		t.Parallel()
		conform(t, mode)
	})
	t.Run("Lists", func(t *testing.T) {
		t.Parallel()
		pool := poolOf(t, pgtest.NewDatabase(t, install)+mode)
		d := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: testSchema})
		log := pgsaga.NewLog(pool, pgsaga.LogOptions{Schema: testSchema})
		p := newProcess(t, pool, saga.Options{Participants: map[string]saga.Participant{"here": d}, Definitions: []saga.Definition{{Name: "one", Plan: func(*saga.Saga) (saga.Plan, error) {
			return saga.Plan{Steps: []saga.Step{d.Step("step", effect, nil)}}, nil
		}}}})
		s, err := p.Run(testwait.Context(t, patience), saga.New{Name: "one"})
		testwait.Must(t, err)
		ids := []uuid.UUID{s.ID, uuid.New()}
		for name, find := range map[string]func() ([]*saga.Saga, error){
			"find": func() ([]*saga.Saga, error) { return log.Find(t.Context(), ids) },
			"list": func() ([]*saga.Saga, error) { return log.Sagas(t.Context(), saga.Query{IDs: ids, Limit: 10}) },
		} {
			if found, err := find(); err != nil || len(found) != 1 || found[0].ID != s.ID {
				t.Errorf("%s: %+v, %v", name, found, err)
			}
		}
		// One whose owner's clock was far ahead is put right before it is claimed.
		testwait.Must(t, log.Create(t.Context(), ids[1], nil, func(u *saga.Unit) {
			u.Made = &saga.Saga{
				ID: ids[1], Name: "ahead", Protocol: saga.Compensated, Input: []byte("null"), Status: saga.Pending, Term: 1, Version: 1,
				LeaseExpiresAt: u.Now.Add(time.Hour), NextAt: u.Now, CreatedAt: u.Now, UpdatedAt: u.Now,
			}
		}))
		testwait.Eventually(t, patience, "it is claimed", func() bool {
			claimed, err := log.Claim(t.Context(), uuid.New(), []string{"ahead"}, time.Millisecond, 10)
			testwait.Must(t, err)
			return len(claimed) == 1
		})
		if spared, err := log.Ended(t.Context(), time.Microsecond, ids, 10); err != nil || len(spared) != 0 {
			t.Errorf("spared: %v, %v", spared, err)
		}
		if n, err := p.Prune(t.Context(), time.Microsecond); err != nil || n != 1 {
			t.Errorf("pruned: %d, %v", n, err)
		}
	})
}

func conform(t *testing.T, mode string) {
	t.Helper()
	sagatest.Run(t, func(t *testing.T) sagatest.Harness {
		t.Helper()
		database := func() *pgxpool.Pool { return poolOf(t, pgtest.NewDatabase(t, installSuite)+mode) }
		return sagatest.Harness{Pools: [2]*pgxpool.Pool{database(), database()}, Schema: testSchema, Prefix: "saga:"}
	})
}

func installSuite(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(sagatest.Install(ctx, conn, testSchema), conn.Close(ctx))
}
