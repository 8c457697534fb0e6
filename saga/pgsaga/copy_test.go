package pgsaga_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// logServer is a server of its own with a log.
func logServer(t *testing.T) (*localpg.Instance, *pgxpool.Pool) {
	t.Helper()
	pgtest.Needs(t, pgkit.Prepare, pgkit.AdvisoryLocks)
	pg := pgtest.Server(t)
	testwait.Must(t, install(t.Context(), pg.URL()))
	return pg, poolOf(t, pg.URL())
}

// TestCopyBesideProduction starts a physical copy of the log's server while production has prepared a branch: same system
// identifier, same timeline, same coordinator. The copy asks the same participant, and must leave that branch alone.
func TestCopyBesideProduction(t *testing.T) {
	t.Parallel()
	pg, log := logServer(t)
	there := newPool(t)
	part := pgsaga.NewDatabase(there, pgsaga.Options{Schema: testSchema})
	options := func(pool *pgxpool.Pool, last pgsaga.Transaction) saga.Options {
		here := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: testSchema})
		return saga.Options{
			Home: "here", FenceEvery: 45 * time.Second, // Nobody is so slow as to lose the fence to the copy.
			Participants: map[string]saga.Participant{"here": here, "there": part},
			Definitions: []saga.Definition{{Name: "both", Plan: func(*saga.Saga) (saga.Plan, error) {
				return saga.Plan{Branches: []saga.Branch{part.Branch("there", effect), here.Branch("here", last)}}, nil
			}}},
		}
	}
	gate, entered := make(chan struct{}), make(chan struct{}, 8)
	production := newProcess(t, log, options(log, func(ctx context.Context, tx pgx.Tx, c saga.Call) (saga.Outcome, error) {
		entered <- struct{}{}
		select {
		case <-gate:
		case <-ctx.Done():
			return saga.Outcome{}, ctx.Err()
		}
		return effect(ctx, tx, c)
	}))
	s, err := production.Start(testwait.Context(t, patience), saga.New{Name: "both", Protocol: saga.TwoPhase})
	testwait.Must(t, err)
	<-entered
	copied := poolOf(t, pgtest.CopyOf(t, pg).URL())
	impostor := newProcess(t, copied, options(copied, effect))
	// In the copy, the lease runs out that production renews.
	testwait.Eventually(t, patience, "the copy tries its hand at the saga", func() bool {
		found, err := impostor.Saga(t.Context(), s.ID)
		return err == nil && (found.Attempts > 0 || found.Status != saga.Pending)
	})
	testwait.Eventually(t, patience, "the copy is disowned", func() bool {
		doubts, _ := impostor.InDoubt(t.Context())
		for i := range doubts {
			if doubts[i].Verdict != saga.Undecided {
				t.Errorf("the copy would %s", doubts[i].Verdict)
			}
		}
		return slices.ContainsFunc(doubts, func(d saga.Doubt) bool { return d.Participant == "there" && d.Reason == saga.ReasonDisowned })
	})
	found, err := impostor.Saga(t.Context(), s.ID)
	if err != nil || found.Status != saga.Pending || found.LastError == "" {
		t.Errorf("%+v, %v", found, err)
	}
	if prepared, err := part.InDoubt(t.Context(), s.Coordinator+":"); err != nil || len(prepared) != 1 {
		t.Errorf("production's branch: %+v, %v", prepared, err)
	}
	close(gate)
	s, err = production.Wait(testwait.Context(t, patience), s.ID)
	if err != nil || s.Status != saga.Completed {
		t.Fatalf("%+v, %v", s, err)
	}
	if own, other := effects(t, log, "saga = $1", s.ID), effects(t, there, "saga = $1", s.ID); len(own) != 1 || len(other) != 1 {
		t.Errorf("effects: %v here, %v there", own, other)
	}
}

// TestRunFromBeforeARestart restarts the log's database after a run has decided. A failover may have lost what the run knows, so
// the run ends no branch, and the saga is read again.
func TestRunFromBeforeARestart(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	pg, log := logServer(t)
	decided, goOn := make(chan struct{}), make(chan struct{})
	var fenced atomic.Int64
	o := h.options(func(*saga.Saga) []saga.Branch {
		return []saga.Branch{h.parts[0].Branch("here", effect), h.parts[1].Branch("there", effect)}
	})
	o.FenceEvery, o.LeaseTTL = 50*time.Millisecond, 2*patience // The lease does not end the run, which is what this is not about.
	second := o
	first := sync.OnceFunc(func() {
		close(decided)
		<-goOn
	})
	o.Hit = func(at saga.Place, _ int) {
		if at == saga.AfterDecision {
			first()
		}
	}
	o.Trace = func(ctx context.Context, p saga.Phase, _ saga.Call) (context.Context, func(saga.Outcome, error)) {
		return ctx, func(_ saga.Outcome, err error) {
			if p == saga.PhaseCommit && errors.Is(err, saga.ErrFenced) {
				fenced.Add(1)
			}
		}
	}
	p := newProcess(t, log, o)
	newProcess(t, log, second)
	s, err := p.Start(testwait.Context(t, patience), saga.New{Name: "both", Protocol: saga.TwoPhase})
	testwait.Must(t, err)
	<-decided
	before := [2]uuid.UUID{h.fence(t, 0, s.Coordinator).Incarnation, h.fence(t, 1, s.Coordinator).Incarnation}
	pgtest.Restart(t, pg)
	testwait.Eventually(t, patience, "another incarnation has both fences", func() bool {
		return h.fence(t, 0, s.Coordinator).Incarnation != before[0] && h.fence(t, 1, s.Coordinator).Incarnation != before[1]
	})
	close(goOn)
	s, err = p.Wait(testwait.Context(t, patience), s.ID)
	if err != nil || s.Status != saga.Completed {
		t.Errorf("%+v, %v", s, err)
	}
	testwait.Eventually(t, patience, "the run was told so", func() bool { return fenced.Load() > 0 })
	if here, there := effects(t, h.pools[0], "saga = $1", s.ID), effects(t, h.pools[1], "saga = $1", s.ID); len(here) != 1 || len(there) != 1 {
		t.Errorf("effects: %v here, %v there", here, there)
	}
}

// restartWithoutTwoPhase makes a server take no prepared transactions any more.
func restartWithoutTwoPhase(t *testing.T, pg *localpg.Instance) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pg.URL())
	testwait.Must(t, err)
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `ALTER SYSTEM SET max_prepared_transactions = 0`)))
	_ = conn.Close(t.Context())
	pgtest.Restart(t, pg)
}

// TestDecisionAfterARestart restarts the log's database when all is prepared. Had it been restored to an older state, what the decision rests on
// would be lost: the run decides nothing, gives the saga up, and the next one brings it to its end.
func TestDecisionAfterARestart(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	pg, log := logServer(t)
	prepared, goOn := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() {
		close(prepared)
		<-goOn
	})
	o := h.options(func(*saga.Saga) []saga.Branch {
		return []saga.Branch{h.parts[0].Branch("here", effect), h.parts[1].Branch("there", effect)}
	})
	o.LeaseTTL = 2 * patience
	var decided atomic.Int64
	o.Hit = func(at saga.Place, branch int) {
		switch {
		case at == saga.AfterPrepare && branch == 1:
			first()
		case at == saga.AfterDecision:
			decided.Add(1)
		}
	}
	p := newProcess(t, log, o)
	s, err := p.Start(testwait.Context(t, patience), saga.New{Name: "both", Protocol: saga.TwoPhase})
	testwait.Must(t, err)
	<-prepared
	pgtest.Restart(t, pg)
	close(goOn)
	testwait.Eventually(t, patience, "the run was told that the database was started anew", func() bool {
		now, err := p.Saga(t.Context(), s.ID)
		return err == nil && (now.Status != saga.Pending || strings.Contains(now.LastError, saga.ErrOtherLife.Error()))
	})
	s, err = p.Wait(testwait.Context(t, patience), s.ID)
	if err != nil || s.Status != saga.Completed || s.Term < 2 {
		t.Errorf("%+v, %v", s, err)
	}
	if n := decided.Load(); n != 1 {
		t.Errorf("%d decisions", n)
	}
	if here, there := effects(t, h.pools[0], "saga = $1", s.ID), effects(t, h.pools[1], "saga = $1", s.ID); len(here) != 1 || len(there) != 1 {
		t.Errorf("effects: %v here, %v there", here, there)
	}
}

// TestEndAfterARestart: nor does a run of before write an end.
func TestEndAfterARestart(t *testing.T) {
	t.Parallel()
	pg, pool := logServer(t)
	log := pgsaga.NewLog(pool, pgsaga.LogOptions{Schema: testSchema})
	life, err := log.Incarnation(t.Context())
	testwait.Check(t, err)
	s := &saga.Saga{
		ID: uuid.New(), Name: "both", Protocol: saga.TwoPhase, Input: []byte("null"), Status: saga.Pending, Owner: uuid.New(), Term: 1, Version: 1,
		Steps: []saga.StepState{{Name: "here", Status: saga.StepPending}}, Life: life.ID,
	}
	testwait.Check(t, log.Create(t.Context(), s.ID, nil, func(u *saga.Unit) {
		made := *s
		made.LeaseExpiresAt, made.NextAt, made.CreatedAt, made.UpdatedAt = u.Now, u.Now, u.Now, u.Now
		u.Made = &made
	}))
	pgtest.Restart(t, pg)
	late := *s
	late.Status = saga.Failed
	if err := log.Save(t.Context(), &late, nil); !errors.Is(err, saga.ErrOtherLife) {
		t.Errorf("an end that rests on what was before: %v", err)
	}
	late = *s
	late.Decided = 1
	if err := log.Save(t.Context(), &late, nil); !errors.Is(err, saga.ErrOtherLife) {
		t.Errorf("a decision that rests on what was before: %v", err)
	}
	testwait.Check(t, log.Save(t.Context(), s, nil)) // It decides nothing.
	now, err := log.Incarnation(t.Context())
	testwait.Check(t, err)
	s.Life, s.Decided = now.ID, 1
	testwait.Check(t, log.Save(t.Context(), s, nil))
	pgtest.Restart(t, pg)
	s.Attempts++
	testwait.Check(t, log.Save(t.Context(), s, new(time.Duration))) // What was decided stays so.
}
