package pgsaga_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// TestOneKeyAtATime has somebody about to make a saga under a key, having found no record of it. Meanwhile nobody else may
// make one under that key, which could come to its end, and leave the key, before the first goes on.
func TestOneKeyAtATime(t *testing.T) {
	t.Parallel()
	t.Run("by advisory locks", func(t *testing.T) {
		t.Parallel()
		oneKeyAtATime(t, newPool(t))
	})
	t.Run("by rows", func(t *testing.T) {
		t.Parallel()
		url := pgtest.Without(t, pgtest.NewDatabase(t, nil), pgkit.AdvisoryLocks)
		testwait.Must(t, install(t.Context(), url))
		pool := poolOf(t, url)
		oneKeyAtATime(t, pool)
		// Whoever ends a prepared transaction would need an advisory lock.
		if err := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: testSchema}).CanPrepare(t.Context()); !errors.Is(err, saga.ErrTwoPhaseUnavailable) {
			t.Errorf("it can prepare: %v", err)
		}
	})
}

func oneKeyAtATime(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	log := pgsaga.NewLog(pool, pgsaga.LogOptions{Schema: testSchema})
	key, other := idempotency.NewID("me", "POST", "/", "key"), idempotency.NewID("me", "POST", "/", "other")
	looked, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	go func() {
		ended <- log.Create(t.Context(), uuid.New(), []idempotency.ID{key}, func(*saga.Unit) {
			close(looked)
			<-goOn
		})
	}()
	<-looked
	again := make(chan struct{})
	go func() {
		ended <- log.Create(t.Context(), uuid.New(), []idempotency.ID{key}, func(*saga.Unit) { close(again) })
	}()
	// Another key is nobody's business.
	testwait.Check(t, log.Create(t.Context(), uuid.New(), []idempotency.ID{other}, func(*saga.Unit) {}))
	select {
	case <-again:
		t.Error("two decide under one key")
	case <-time.After(200 * time.Millisecond):
	}
	close(goOn)
	for range 2 {
		testwait.Check(t, <-ended)
	}
	<-again
}
