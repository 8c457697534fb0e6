package pgsaga_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// twoDatabases take part in transactions; the first has the log.
type twoDatabases struct {
	pools [2]*pgxpool.Pool
	parts [2]*pgsaga.Database
}

func openTwo(t *testing.T) *twoDatabases {
	t.Helper()
	pgtest.Needs(t, pgkit.Prepare, pgkit.AdvisoryLocks)
	h := &twoDatabases{}
	for i := range h.pools {
		h.pools[i] = newPool(t)
		h.parts[i] = pgsaga.NewDatabase(h.pools[i], pgsaga.Options{Schema: testSchema, LockTimeout: 500 * time.Millisecond})
	}
	return h
}

func (h *twoDatabases) options(branches func(*saga.Saga) []saga.Branch) saga.Options {
	return saga.Options{
		Participants: map[string]saga.Participant{"here": h.parts[0], "there": h.parts[1]},
		Definitions: []saga.Definition{{Name: "both", Plan: func(s *saga.Saga) (saga.Plan, error) {
			return saga.Plan{Branches: branches(s)}, nil
		}}},
	}
}

func (h *twoDatabases) inDoubt(t *testing.T) (gids []string) {
	t.Helper()
	for _, part := range h.parts {
		found, err := part.InDoubt(t.Context(), "saga:")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range found {
			gids = append(gids, p.GID)
		}
	}
	return gids
}

// TestBothOrNeither runs two-phase transactions on processes that die at each place, with branches that fail and refuse,
// and compares both databases with the log (T1).
func TestBothOrNeither(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	seed := rand.Uint64()
	source, mu := rand.New(rand.NewPCG(seed, 1)), sync.Mutex{}
	rng := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return source.IntN(n)
	}
	// Both write to one row of few, so that they are in each other's way.
	stumble := func(ctx context.Context, tx pgx.Tx, c saga.Call) (saga.Outcome, error) {
		var in struct {
			Owner  string
			Refuse string
		}
		if err := json.Unmarshal(c.Input, &in); err != nil {
			return saga.Outcome{}, err
		}
		if rng(10) == 0 {
			return saga.Outcome{}, errFlaky
		}
		if _, err := tx.Exec(ctx, `UPDATE accounts SET cents = cents + 1 WHERE owner = $1`, in.Owner); err != nil {
			return saga.Outcome{}, err
		}
		if in.Refuse == c.Step {
			return saga.Refuse("no"), nil
		}
		return effect(ctx, tx, c)
	}
	var deaths atomic.Int64
	places := []saga.Place{saga.AfterIntent, saga.AfterPrepare, saga.AfterDecision, saga.AfterCommit}
	boot := func(place saga.Place) *process {
		var p *process
		var ready sync.WaitGroup
		ready.Add(1)
		var left atomic.Int64
		left.Store(int64(1 + rng(6)))
		o := h.options(func(*saga.Saga) []saga.Branch {
			return []saga.Branch{h.parts[0].Branch("here", stumble), h.parts[1].Branch("there", stumble)}
		})
		o.Hit = func(at saga.Place, _ int) {
			if at != place || left.Add(-1) != 0 {
				return
			}
			ready.Wait()
			p.die()
			deaths.Add(1)
			if at != saga.AfterIntent {
				runtime.Goexit()
			}
		}
		p = newProcess(t, h.pools[0], o)
		ready.Done()
		return p
	}
	refused := map[uuid.UUID]bool{}
	round := func() time.Duration {
		for _, place := range places {
			p := boot(place)
			for range 10 {
				owner, refuse := []string{"ann", "ben"}[rng(2)], []string{"", "", "", "here", "there"}[rng(5)]
				s, err := p.Start(testwait.Context(t, patience), saga.New{Name: "both", Protocol: saga.TwoPhase, Input: fmt.Appendf(nil, `{"Owner":%q,"Refuse":%q}`, owner, refuse)})
				if err != nil {
					t.Fatal(err)
				}
				refused[s.ID] = refuse != ""
			}
		}
		began := time.Now()
		survivor := boot(-1)
		for id := range refused {
			if _, err := survivor.Wait(testwait.Context(t, patience), id); err != nil {
				t.Fatalf("seed %d: wait for %s: %v", seed, id, err)
			}
		}
		testwait.Eventually(t, patience, "nothing in doubt", func() bool { return len(h.inDoubt(t)) == 0 })
		return time.Since(began)
	}
	testpromise.CheckEach(t, []string{"in-doubt"}, func(seen func(string, time.Duration)) {
		for range scale(1, 10) {
			seen("in-doubt", round())
		}
	})
	if deaths.Load() == 0 {
		t.Error("nobody died")
	}
	ends := map[saga.Status]int{}
	log := pgsaga.NewLog(h.pools[0], pgsaga.LogOptions{Schema: testSchema})
	for id, refusal := range refused {
		s, err := log.Saga(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		ends[s.Status]++
		want := map[saga.Status]int{saga.Completed: 1, saga.Failed: 0}[s.Status]
		here, there := effects(t, h.pools[0], "saga = $1", id), effects(t, h.pools[1], "saga = $1", id)
		if len(here) != want || len(there) != want || (s.Status == saga.Failed) != refusal || (s.Decided != 0) != (s.Status == saga.Completed) || (s.LastError != "") != (s.Status == saga.Failed) {
			t.Errorf("%s, refused: %v, is %s, with %v here and %v there, last error %q", id, refusal, s.Status, here, there, s.LastError)
		}
	}
	if t.Failed() {
		t.Logf("seed %d", seed)
	}
	t.Logf("%v, %d deaths", ends, deaths.Load())
}

// TestTheViewOfDoubt shows what is prepared, what is to become of it, and who could not be asked.
func TestTheViewOfDoubt(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	gate, entered := make(chan struct{}), make(chan struct{}, 1)
	away := poolOf(t, pgtest.NewDatabase(t, install))
	away.Close()
	o := h.options(func(*saga.Saga) []saga.Branch {
		wait := func(ctx context.Context, tx pgx.Tx, c saga.Call) (saga.Outcome, error) {
			entered <- struct{}{}
			select {
			case <-gate:
			case <-ctx.Done():
				return saga.Outcome{}, ctx.Err()
			}
			return effect(ctx, tx, c)
		}
		return []saga.Branch{h.parts[0].Branch("here", effect), h.parts[1].Branch("there", wait)}
	})
	o.Participants["away"] = pgsaga.NewDatabase(away, pgsaga.Options{Schema: testSchema})
	p := newProcess(t, h.pools[0], o)
	s, err := p.Start(testwait.Context(t, patience), saga.New{Name: "both", Protocol: saga.TwoPhase})
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	doubts, failures := p.InDoubt(testwait.Context(t, patience))
	if len(doubts) != 1 || doubts[0].Participant != "here" || doubts[0].Saga != s.ID || doubts[0].Verdict != saga.Leave || doubts[0].Age < 0 || doubts[0].At.IsZero() {
		t.Errorf("%+v", doubts)
	}
	if len(failures) != 1 || failures["away"] == nil {
		t.Errorf("who could not be asked: %v", failures)
	}
	// An operator gives it up before it is decided: it must not be decided after that.
	if _, err := p.Compensate(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	close(gate)
	s, err = p.Wait(testwait.Context(t, patience), s.ID)
	if err != nil || s.Status != saga.Failed || s.Reason != saga.ReasonCancelled {
		t.Errorf("%+v, %v", s, err)
	}
	if got := h.inDoubt(t); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	if here, there := effects(t, h.pools[0], "true"), effects(t, h.pools[1], "true"); len(here)+len(there) > 0 {
		t.Errorf("effects: %v, %v", here, there)
	}
}

// TestParkedBranch keeps a branch from being in doubt while its saga waits for its next try.
func TestParkedBranch(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	log := pgsaga.NewLog(h.pools[0], pgsaga.LogOptions{Schema: testSchema})
	coordinator, err := log.Coordinator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id, owner := uuid.New(), uuid.New()
	s := &saga.Saga{
		ID: id, Name: "nobody's", Protocol: saga.TwoPhase, Input: []byte("null"), Status: saga.Pending, Owner: owner, Term: 1, Version: 1,
		Coordinator: coordinator, Steps: []saga.StepState{{Name: "here", Status: saga.StepPending}},
	}
	err = log.Create(t.Context(), id, nil, func(u *saga.Unit) {
		s.LeaseExpiresAt, s.NextAt, s.CreatedAt, s.UpdatedAt = u.Now.Add(time.Hour), u.Now, u.Now, u.Now
		u.Made = s
	})
	if err != nil {
		t.Fatal(err)
	}
	gid := saga.GID(coordinator, id, 1, 0)
	if _, err := h.parts[0].Branch("here", effect).Prepare(t.Context(), saga.Call{Saga: id, Step: "here"}, gid); err != nil {
		t.Fatal(err)
	}
	o := h.options(nil)
	o.Coordinator = coordinator
	p := saga.NewService(log, o) // It does not reconcile: whoever settles a branch that another process is settling is refused.
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	if err := p.Resolve(t.Context()); err != nil || len(h.inDoubt(t)) != 1 {
		t.Errorf("a run's branch was settled by another: %v", err)
	}
	if err := log.Save(t.Context(), s, new(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := p.Resolve(t.Context()); err != nil || len(h.inDoubt(t)) != 0 {
		t.Errorf("left in doubt: %v, %v", h.inDoubt(t), err)
	}
	if err := end(t, h.parts[0], gid, true); !errors.Is(err, saga.ErrNotPrepared) {
		t.Errorf("commit of what was rolled back: %v", err)
	}
	if err := end(t, h.parts[0], gid, false); err != nil {
		t.Errorf("a second rollback: %v", err)
	}
}

// end ends a prepared transaction as an operator would, who asks no log.
func end(t *testing.T, p saga.Participant, gid string, commit bool) error {
	t.Helper()
	other, incarnation := "test:"+uuid.NewString(), uuid.New()
	if _, err := p.MoveFence(t.Context(), other, uuid.Nil, uuid.New(), incarnation); err != nil {
		t.Fatal(err)
	}
	return p.EndPrepared(t.Context(), gid, commit, other, incarnation)
}

// TestPrepare meets what a participant may: a lock that is not given, a refusal, a commit that is repeated, names that are
// not ours.
func TestPrepare(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	d := h.parts[0]
	if err := d.CanPrepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	pay := d.Branch("pay", move("ann", -100))
	first, second := saga.Call{Saga: uuid.New(), Step: "pay"}, saga.Call{Saga: uuid.New(), Step: "pay"}
	gid := func(c saga.Call) string { return saga.GID("saga:test", c.Saga, 1, 0) }
	if out, err := pay.Prepare(t.Context(), first, gid(first)); err != nil || out.Refused {
		t.Fatal(out, err)
	}
	if _, err := pay.Prepare(t.Context(), second, gid(second)); err == nil || !strings.Contains(err.Error(), "55P03") {
		t.Errorf("a row that is locked: %v", err)
	}
	for range 2 {
		if err := end(t, d, gid(first), true); err != nil {
			t.Errorf("commit: %v", err)
		}
	}
	out, err := d.Branch("pay", move("ann", -1000)).Prepare(t.Context(), second, gid(second))
	if err != nil || out != saga.Refuse("no money") {
		t.Errorf("%+v, %v", out, err)
	}
	if got := h.inDoubt(t); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	for _, bad := range []string{"", "a'b", "A", "a b", strings.Repeat("a", 200)} {
		if err := d.Prepare(t.Context(), bad, nil); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestOnce executes a step from several connections at once, with refusals, failures and cancellations.
func TestOnce(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	d := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: testSchema})
	step := d.Step("take", take("lamp", 1), take("lamp", -1))
	c := saga.Call{Saga: uuid.New(), Step: "take"}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if out, err := step.Do(t.Context(), c); err != nil || out.Refused {
				t.Error(out, err)
			}
		})
	}
	group.Wait()
	lamps := func() (n int) {
		if err := pool.QueryRow(t.Context(), `SELECT left_over FROM stock`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if lamps() != 1 {
		t.Errorf("%d lamps are left, of 2", lamps())
	}
	// A cancellation that comes too late is told so.
	late := c
	late.Cancel = saga.ReasonCancelled
	if out, err := step.Do(t.Context(), late); err != nil || out.Refused {
		t.Error(out, err)
	}
	// One that comes first stands, and so does a refusal when there is stock again.
	early := saga.Call{Saga: uuid.New(), Step: "take", Cancel: saga.ReasonDeadline}
	refused := saga.Call{Saga: uuid.New(), Step: "take"}
	if out, err := d.Step("take", take("lamp", 5), nil).Do(t.Context(), refused); err != nil || out != saga.Refuse("sold out") {
		t.Error(out, err)
	}
	for _, c := range []saga.Call{early, {Saga: early.Saga, Step: "take"}, refused} {
		if out, err := step.Do(t.Context(), c); err != nil || !out.Refused {
			t.Error(out, err)
		}
	}
	// A failure leaves nothing, and a compensation that refuses is one.
	fail := func(ctx context.Context, tx pgx.Tx, c saga.Call) (saga.Outcome, error) {
		out, err := take("lamp", 1)(ctx, tx, c)
		return out, errors.Join(err, errFlaky)
	}
	failing := saga.Call{Saga: uuid.New(), Step: "take"}
	if _, err := d.Step("take", fail, nil).Do(t.Context(), failing); !errors.Is(err, errFlaky) {
		t.Error(err)
	}
	undo := c
	undo.Undo = true
	if _, err := d.Step("take", nil, take("lamp", 5)).Undo(t.Context(), undo); err == nil {
		t.Error("a compensation was refused")
	}
	if lamps() != 1 {
		t.Errorf("%d lamps are left, of 2", lamps())
	}
	for range 2 {
		if out, err := step.Undo(t.Context(), undo); err != nil || out.Refused {
			t.Error(out, err)
		}
	}
	if out, err := step.Do(t.Context(), failing); err != nil || out.Refused || lamps() != 1 {
		t.Error(out, err, lamps())
	}
	if c.IdempotencyKey() == undo.IdempotencyKey() || !strings.HasPrefix(undo.IdempotencyKey(), c.Saga.String()) {
		t.Error(c.IdempotencyKey(), undo.IdempotencyKey())
	}
}
