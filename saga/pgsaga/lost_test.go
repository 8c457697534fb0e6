package pgsaga_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// halfCommitted leaves a transaction of two branches, of which the first was committed and the second is prepared, and a
// log that knows of no decision.
func (h *twoDatabases) halfCommitted(t *testing.T, log *pgxpool.Pool, coordinator string) uuid.UUID {
	t.Helper()
	id := uuid.New()
	s := &saga.Saga{
		ID: id, Name: "both", Protocol: saga.TwoPhase, Input: []byte("null"), Status: saga.Pending, Owner: uuid.New(), Term: 1, Version: 1,
		Coordinator: coordinator, Steps: []saga.StepState{{Name: "here", Status: saga.StepPending}, {Name: "there", Status: saga.StepPending}},
	}
	err := pgsaga.NewLog(log, pgsaga.LogOptions{Schema: testSchema}).Create(t.Context(), id, nil, func(u *saga.Unit) {
		s.LeaseExpiresAt, s.NextAt, s.CreatedAt, s.UpdatedAt = u.Now, u.Now, u.Now, u.Now
		u.Made = s
	})
	testwait.Must(t, err)
	for i, name := range []string{"here", "there"} {
		gid := saga.GID(coordinator, id, 1, i)
		testwait.Must(t, testwait.Err(h.parts[i].Branch(name, effect).Prepare(t.Context(), saga.Call{Saga: id, Step: name}, gid)))
	}
	testwait.Must(t, end(t, h.parts[0], saga.GID(coordinator, id, 1, 0), true))
	return id
}

// TestLostDecision has a log that was restored to before the decision: the branch that was committed proves it, also to an
// operator who has cancelled the transaction since.
func TestLostDecision(t *testing.T) {
	t.Parallel()
	for _, cancelled := range []bool{false, true} {
		t.Run(fmt.Sprintf("cancelled %v", cancelled), func(t *testing.T) {
			t.Parallel()
			lostDecision(t, cancelled)
		})
	}
}

func lostDecision(t *testing.T, cancelled bool) {
	t.Helper()
	h := openTwo(t)
	coordinator, err := pgsaga.NewLog(h.pools[0], pgsaga.LogOptions{Schema: testSchema}).Coordinator(t.Context())
	testwait.Must(t, err)
	id := h.halfCommitted(t, h.pools[0], coordinator)
	testwait.Must(t, testwait.Err(h.pools[0].Exec(t.Context(), `UPDATE "some sagas".sagas SET cancelled = $1`, cancelled)))
	p := newProcess(t, h.pools[0], h.options(func(*saga.Saga) []saga.Branch {
		return []saga.Branch{h.parts[0].Branch("here", effect), h.parts[1].Branch("there", effect)}
	}))
	s, err := p.Wait(testwait.Context(t, patience), id)
	if err != nil || s.Status != saga.Completed || s.Decided != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if here, there := effects(t, h.pools[0], "saga = $1", id), effects(t, h.pools[1], "saga = $1", id); len(here) != 1 || len(there) != 1 {
		t.Errorf("effects: %v here, %v there", here, there)
	}
}

// TestLostLaterTerm has a log that was restored to before the term in which one ledger committed its branch. Here the run's own term has
// that number. The deadline is over, but the saga must not be said to have failed: it stays pending, and says what is missing.
func TestLostLaterTerm(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	log := pgsaga.NewLog(h.pools[0], pgsaga.LogOptions{Schema: testSchema})
	coordinator, err := log.Coordinator(t.Context())
	testwait.Must(t, err)
	id := uuid.New()
	err = log.Create(t.Context(), id, nil, func(u *saga.Unit) {
		u.Made = &saga.Saga{
			ID: id, Name: "both", Protocol: saga.TwoPhase, Input: []byte("null"), Status: saga.Pending, Owner: uuid.New(), Term: 1, Version: 1,
			Coordinator: coordinator, Steps: []saga.StepState{{Name: "here", Status: saga.StepPending}, {Name: "there", Status: saga.StepPending}},
			LeaseExpiresAt: u.Now, NextAt: u.Now, CreatedAt: u.Now, UpdatedAt: u.Now, DeadlineAt: new(u.Now),
		}
	})
	testwait.Must(t, err)
	lost := saga.GID(coordinator, id, 2, 1)
	testwait.Must(t, testwait.Err(h.parts[1].Branch("there", effect).Prepare(t.Context(), saga.Call{Saga: id, Step: "there"}, lost)))
	testwait.Must(t, end(t, h.parts[1], lost, true))
	p := newProcess(t, h.pools[0], h.options(func(*saga.Saga) []saga.Branch {
		return []saga.Branch{h.parts[0].Branch("here", effect), h.parts[1].Branch("there", effect)}
	}))
	var last *saga.Saga
	testwait.Eventually(t, patience, "the saga got somewhere", func() bool {
		s, err := p.Saga(t.Context(), id)
		if err != nil {
			return false
		}
		last = s
		return s.Status != saga.Pending || strings.Contains(s.LastError, saga.ErrNotPrepared.Error())
	})
	if last.Status != saga.Pending || last.Decided != 2 {
		t.Errorf("%s, reason %q, decided in term %d, last error %q", last.Status, last.Reason, last.Decided, last.LastError)
	}
}

// TestLostIntent has a log that lost all it knew of transactions: their branches are not ended until they are old enough and
// all participants have been asked, and then as their siblings were; nor while a database is known to have lost commits.
func TestLostIntent(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	log := pgsaga.NewLog(h.pools[0], pgsaga.LogOptions{Schema: testSchema})
	coordinator, err := log.Coordinator(t.Context())
	testwait.Must(t, err)
	half := h.halfCommitted(t, h.pools[0], coordinator)
	none := uuid.New()
	testwait.Must(t, testwait.Err(h.parts[1].Branch("there", effect).Prepare(t.Context(), saga.Call{Saga: none, Step: "there"}, saga.GID(coordinator, none, 1, 1))))
	testwait.Must(t, testwait.Err(h.pools[0].Exec(t.Context(), `DELETE FROM "some sagas".sagas`)))
	away := poolOf(t, pgtest.NewDatabase(t, install))
	away.Close()
	var halted func() error
	look := func(age time.Duration, left int, reason string, more map[string]saga.Participant) {
		t.Helper()
		o := h.options(nil)
		o.Coordinator, o.DoubtAge, o.Home = coordinator, age, "here"
		o.Halted = halted
		maps.Copy(o.Participants, more)
		s := saga.NewService(log, o)
		defer func() { _ = s.Close(context.Background()) }()
		if err := s.Resolve(t.Context()); (err != nil) != (more["away"] != nil) {
			t.Error(err)
		}
		if got := h.inDoubt(t); len(got) != left {
			t.Errorf("branches left, at an age of %v: %v; want %d", age, got, left)
		}
		doubts, _ := s.InDoubt(t.Context())
		for i := range doubts {
			if doubts[i].Verdict != saga.Undecided || doubts[i].Reason != reason {
				t.Errorf("%s, reason %q; want %q", doubts[i].Verdict, doubts[i].Reason, reason)
			}
		}
		if len(doubts) != left {
			t.Errorf("listed: %+v", doubts)
		}
	}
	look(0, 2, saga.ReasonYoung, nil)
	look(time.Microsecond, 2, saga.ReasonNotAsked, map[string]saga.Participant{"away": pgsaga.NewDatabase(away, pgsaga.Options{Schema: testSchema})})
	look(time.Microsecond, 2, saga.ReasonNotAsked, map[string]saga.Participant{"mute": mute{h.parts[0]}})
	halted = func() error { return saga.ErrHistoryLost }
	look(time.Microsecond, 2, saga.ReasonHistory, nil)
	halted = nil
	look(time.Microsecond, 0, "", nil)
	if here, there := effects(t, h.pools[0], "saga = $1", half), effects(t, h.pools[1], "true"); len(here) != 1 || len(there) != 1 {
		t.Errorf("effects: %v here, %v there", here, there)
	}
}

// mute is a database that shows its prepared transactions, and not which it has committed.
type mute struct{ *pgsaga.Database }

func (mute) Committed(context.Context, uuid.UUID) ([]string, error) { return nil, errFlaky }

// TestNoTwoPhase meets a database that takes no prepared transactions. It must not be asked for them again and again.
func TestNoTwoPhase(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	pg := pgtest.Server(t)
	testwait.Must(t, install(t.Context(), pg.URL()))
	restartWithoutTwoPhase(t, pg)
	none := pgsaga.NewDatabase(poolOf(t, pg.URL()), pgsaga.Options{Schema: testSchema})
	o := h.options(func(*saga.Saga) []saga.Branch {
		return []saga.Branch{h.parts[0].Branch("here", effect), none.Branch("there", effect)}
	})
	o.Participants["there"] = none
	o.Deadline, o.LeaseTTL = patience, 2*patience
	p := newProcess(t, h.pools[0], o)
	s, err := p.Run(testwait.Context(t, patience), saga.New{Name: "both", Protocol: saga.TwoPhase})
	testwait.Must(t, err)
	if s.Status != saga.Failed || s.Reason != "two_phase_unavailable" || !strings.Contains(s.LastError, "max_prepared_transactions") || s.Term != 1 {
		t.Errorf("%s, reason %q, last error %q, term %d", s.Status, s.Reason, s.LastError, s.Term)
	}
	if left := h.inDoubt(t); len(left) != 0 || len(effects(t, h.pools[0], "true")) != 0 {
		t.Errorf("left %v", left)
	}
}
