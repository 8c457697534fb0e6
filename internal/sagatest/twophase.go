package sagatest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// needsTwoPhase skips a check of a database that takes no prepared transactions.
func (s *suite) needsTwoPhase() {
	s.Helper()
	for _, d := range s.parts {
		err := d.CanPrepare(s.Context())
		if errors.Is(err, saga.ErrTwoPhaseUnavailable) {
			s.Skip("the database takes no prepared transactions: max_prepared_transactions is 0")
		}
		testwait.Must(s, err)
	}
}

// both is a definition of transactions with a branch in each database.
func (s *suite) both(do pgsaga.Transaction) saga.Definition {
	return saga.Definition{Name: s.named("both"), Plan: func(*saga.Saga) (saga.Plan, error) {
		return saga.Plan{Branches: []saga.Branch{s.parts[0].Branch("here", do), s.parts[1].Branch("there", do)}}, nil
	}}
}

// inDoubt are the names of this check's prepared transactions.
func (s *suite) inDoubt() (gids []string, err error) {
	for _, part := range s.parts {
		found, err := part.InDoubt(s.Context(), s.coordinator+":")
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			gids = append(gids, p.GID)
		}
	}
	slices.Sort(gids)
	return slices.Compact(gids), nil
}

// nothingInDoubt waits until no transaction of this check is prepared.
func (s *suite) nothingInDoubt() {
	s.Helper()
	testwait.Eventually(s, patience, "nothing is in doubt", func() bool {
		gids, err := s.inDoubt()
		return err == nil && len(gids) == 0
	})
}

// branches are the effects of a transaction in both databases, in no order.
func (s *suite) branches(id uuid.UUID) []string {
	s.Helper()
	found := s.effects(s.h.Pools[0], id)
	if s.h.Pools[1] != s.h.Pools[0] {
		found = append(found, s.effects(s.h.Pools[1], id)...)
	}
	slices.Sort(found)
	return found
}

// bothOrNeither runs two-phase transactions on processes that die at each place, with branches that fail and refuse, and compares
// both databases with the log.
func (s *suite) bothOrNeither() {
	s.needsTwoPhase()
	type order struct{ Item, Refuse string }
	items := []string{"lamp", "desk"} // Few, so that transactions are in each other's way.
	for _, item := range items {
		for _, branch := range []string{"here", "there"} { // Where both branches are in one database, each has rows of its own.
			s.stock(item+" "+branch, 1<<20)
		}
	}
	definition := s.both(func(ctx context.Context, tx pgx.Tx, c saga.Call) (saga.Outcome, error) {
		var in order
		if err := json.Unmarshal(c.Input, &in); err != nil {
			return saga.Outcome{}, err
		}
		if s.rng(10) == 0 {
			return saga.Outcome{}, errFlaky
		}
		if out, err := s.take(s.named(in.Item+" "+c.Step), 1)(ctx, tx, c); err != nil || out.Refused {
			return out, err
		}
		if in.Refuse == c.Step {
			return saga.Refuse("no"), nil
		}
		return s.effect(ctx, tx, c)
	})
	var mortal []*process
	refused := map[uuid.UUID]bool{}
	round := func() time.Duration {
		for _, place := range []saga.Place{saga.AfterIntent, saga.AfterPrepare, saga.AfterDecision, saga.AfterCommit} {
			p := s.doomed(definition, place, -1, 1+s.rng(6))
			mortal = append(mortal, p)
			for range 10 {
				in := order{items[s.rng(2)], []string{"", "", "", "here", "there"}[s.rng(5)]}
				raw, err := json.Marshal(in)
				testwait.Must(s, err)
				started, err := p.Start(s.ctx(), saga.New{Name: definition.Name, Protocol: saga.TwoPhase, Input: raw})
				testwait.Must(s, err)
				refused[started.ID] = in.Refuse != ""
			}
		}
		began := time.Now()
		survivor := s.process(definition, nil)
		for id := range refused {
			s.ended(survivor, id)
		}
		s.nothingInDoubt()
		return time.Since(began)
	}
	testpromise.CheckEach(s.TB, []string{"in-doubt"}, func(seen func(string, time.Duration)) {
		for range testwait.Count(1, 10) {
			seen("in-doubt", round())
		}
	})
	if count(mortal) == 0 {
		s.Error("no process died")
	}
	ends := map[saga.Status]int{}
	for id, refusal := range refused {
		ended, err := s.log.Saga(s.Context(), id)
		testwait.Must(s, err)
		ends[ended.Status]++
		want := map[saga.Status][]string{saga.Completed: {"here", "there"}}[ended.Status]
		got := s.branches(id)
		if !slices.Equal(got, want) || ended.Status == saga.Pending || (ended.Status == saga.Failed) != refusal || (ended.Decided != 0) != (ended.Status == saga.Completed) ||
			(ended.LastError != "") != (ended.Status == saga.Failed) {
			s.Errorf("%s, refused: %v, is %s, with %v, last error %q", id, refusal, ended.Status, got, ended.LastError)
		}
	}
	s.Logf("%v, %d deaths", ends, count(mortal))
}

// decisionStands lets a process die at three places, and another one go on.
func (s *suite) decisionStands() {
	s.needsTwoPhase()
	for _, c := range []struct {
		when     string
		place    saga.Place
		branch   int
		prepared int  // transactions that are left
		decided  bool // when it dies
	}{
		{"before its decision", saga.AfterPrepare, 1, 2, false},
		{"after its decision", saga.AfterDecision, 0, 2, true},
		{"between two commits", saga.AfterCommit, 0, 1, true},
	} {
		definition := s.both(s.effect)
		p := s.doomed(definition, c.place, c.branch, 1)
		started, err := p.Start(s.ctx(), saga.New{Name: definition.Name, Protocol: saga.TwoPhase})
		testwait.Must(s, err)
		ctx := s.ctx()
		select {
		case <-p.died:
		case <-ctx.Done():
			s.Fatalf("%s: the process did not come so far", c.when)
		}
		if gids, err := s.inDoubt(); err != nil || len(gids) != c.prepared {
			s.Errorf("%s: %q are prepared, %v; want %d", c.when, gids, err, c.prepared)
		}
		dead, err := s.log.Saga(ctx, started.ID)
		testwait.Must(s, err)
		if decided := dead.Decided > 0; decided != c.decided {
			s.Errorf("%s: it is decided: %t", c.when, decided)
		}
		other := s.process(definition, nil)
		ended := s.ended(other, started.ID)
		s.nothingInDoubt()
		other.die() // Lest it goes on with the next one before that has been looked at.
		if got := s.branches(started.ID); ended.Status != saga.Completed || !slices.Equal(got, []string{"here", "there"}) {
			s.Errorf("%s: it is %s, with %v", c.when, ended.Status, got)
		}
		if c.decided && ended.Decided != dead.Decided || ended.Decided <= dead.Term && !c.decided {
			s.Errorf("%s: it was decided in term %d, after one that died in term %d and had decided in term %d", c.when, ended.Decided, dead.Term, dead.Decided)
		}
	}
}

// parked keeps a branch from being in doubt while its saga waits for its next try.
func (s *suite) parked() {
	s.needsTwoPhase()
	d, id := s.parts[0], uuid.New()
	made := &saga.Saga{
		ID: id, Name: s.named("nobody's"), Protocol: saga.TwoPhase, Input: []byte("null"), Status: saga.Pending, Owner: uuid.New(), Term: 1, Version: 1,
		Coordinator: s.coordinator, Steps: []saga.StepState{{Name: "here", Status: saga.StepPending}},
	}
	testwait.Must(s, s.log.Create(s.ctx(), id, nil, func(u *saga.Unit) {
		made.LeaseExpiresAt, made.NextAt, made.CreatedAt, made.UpdatedAt = u.Now.Add(time.Hour), u.Now, u.Now, u.Now
		u.Made = made
	}))
	gid := saga.GID(s.coordinator, id, 1, 0)
	testwait.Must(s, testwait.Err(d.Branch("here", s.effect).Prepare(s.ctx(), saga.Call{Saga: id, Step: "here"}, gid)))
	// It does not reconcile: whoever settles a branch that another process is settling is refused.
	p := saga.NewService(s.log, saga.Options{Coordinator: s.coordinator, Participants: map[string]saga.Participant{s.named("here"): d}})
	s.Cleanup(func() { testwait.Check(s, p.Close(context.Background())) })
	settled := func(want int, when string) {
		s.Helper()
		testwait.Check(s, p.Resolve(s.ctx()))
		if gids, err := s.inDoubt(); err != nil || len(gids) != want {
			s.Errorf("%s, %q are prepared, %v; want %d", when, gids, err, want)
		}
	}
	settled(1, "while its run has the lease")
	testwait.Must(s, s.log.Save(s.ctx(), made, new(time.Hour)))
	settled(0, "when its run has given the lease up")
	incarnation, err := s.log.Incarnation(s.ctx())
	testwait.Must(s, err)
	if err := d.EndPrepared(s.ctx(), gid, true, s.coordinator, incarnation.ID); !errors.Is(err, saga.ErrNotPrepared) {
		s.Errorf("commit of what was rolled back: %v", err)
	}
	testwait.Check(s, d.EndPrepared(s.ctx(), gid, false, s.coordinator, incarnation.ID))
	if got := s.effects(s.h.Pools[0], id); len(got) > 0 {
		s.Errorf("effects of what was rolled back: %v", got)
	}
}
