package pgsaga_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
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
		testwait.Must(t, err)
		for _, p := range found {
			gids = append(gids, p.GID)
		}
	}
	return gids
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
	o.LeaseTTL = 2 * patience // Nobody takes it over, however slow the machine is.
	p := newProcess(t, h.pools[0], o)
	s, err := p.Start(testwait.Context(t, patience), saga.New{Name: "both", Protocol: saga.TwoPhase})
	testwait.Must(t, err)
	<-entered
	doubts, failures := p.InDoubt(testwait.Context(t, patience))
	if len(doubts) != 1 || doubts[0].Participant != "here" || doubts[0].Saga != s.ID || doubts[0].Verdict != saga.Leave || doubts[0].Age < 0 || doubts[0].At.IsZero() {
		t.Errorf("%+v", doubts)
	}
	if len(failures) != 1 || failures["away"] == nil {
		t.Errorf("who could not be asked: %v", failures)
	}
	// An operator gives it up before it is decided: it must not be decided after that.
	testwait.Must(t, testwait.Err(p.Compensate(t.Context(), s.ID)))
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

// TestEndedByItsFunction has branches whose functions end their transaction. Nothing of the two-phase transaction may be decided, and no
// mark says that a branch was committed.
func TestEndedByItsFunction(t *testing.T) { //nolint:tparallel // One after the other: what is in doubt is looked for in all of a database.
	t.Parallel()
	h := openTwo(t)
	exec := func(sql string) pgsaga.Transaction {
		return func(ctx context.Context, tx pgx.Tx, c saga.Call) (saga.Outcome, error) {
			if _, err := effect(ctx, tx, c); err != nil {
				return saga.Outcome{}, err
			}
			return saga.Outcome{}, testwait.Err(tx.Exec(ctx, sql))
		}
	}
	for name, do := range map[string]pgsaga.Transaction{
		"Commit": func(ctx context.Context, tx pgx.Tx, _ saga.Call) (saga.Outcome, error) {
			return saga.Outcome{}, tx.Commit(ctx)
		},
		"deferred Rollback": func(ctx context.Context, tx pgx.Tx, c saga.Call) (saga.Outcome, error) {
			defer func() { _ = tx.Rollback(ctx) }()
			return effect(ctx, tx, c)
		},
		"COMMIT":           exec("COMMIT"),
		"ROLLBACK":         exec("ROLLBACK"),
		"COMMIT, BEGIN":    exec("COMMIT; BEGIN"),
		"ROLLBACK, BEGIN":  exec("ROLLBACK; BEGIN"),
		"COMMIT AND CHAIN": exec("COMMIT AND CHAIN"),
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcess(t, h.pools[0], h.options(func(*saga.Saga) []saga.Branch {
				return []saga.Branch{h.parts[0].Branch("here", effect), h.parts[1].Branch("there", do)}
			}))
			s, err := p.Run(testwait.Context(t, patience), saga.New{Name: "both", Protocol: saga.TwoPhase})
			testwait.Must(t, err)
			if s.Status != saga.Failed || s.Reason != saga.ReasonTransactionEnded || s.Decided != 0 || s.Term != 1 || !strings.Contains(s.LastError, saga.ErrTransactionEnded.Error()) {
				t.Errorf("%+v", s)
			}
			gids, err := h.parts[1].Committed(t.Context(), s.ID)
			if err != nil || len(gids) > 0 {
				t.Errorf("committed: %v, %v", gids, err)
			}
			if here, left := effects(t, h.pools[0], "saga = $1", s.ID), h.inDoubt(t); len(here)+len(left) > 0 {
				t.Errorf("effects %v, in doubt %v", here, left)
			}
		})
	}
	// Savepoints are the function's own.
	nested := func(ctx context.Context, tx pgx.Tx, c saga.Call) (out saga.Outcome, err error) {
		undone := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, _ = effect(ctx, tx, c)
			return errFlaky
		})
		if !errors.Is(undone, errFlaky) {
			return out, undone
		}
		return out, pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return testwait.Err(effect(ctx, tx, c)) })
	}
	p := newProcess(t, h.pools[0], h.options(func(*saga.Saga) []saga.Branch {
		return []saga.Branch{h.parts[0].Branch("here", effect), h.parts[1].Branch("there", nested)}
	}))
	if s, err := p.Run(testwait.Context(t, patience), saga.New{Name: "both", Protocol: saga.TwoPhase}); err != nil || s.Status != saga.Completed || len(effects(t, h.pools[1], "saga = $1", s.ID)) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// end ends a prepared transaction as an operator would, who asks no log.
func end(t *testing.T, p saga.Participant, gid string, commit bool) error {
	t.Helper()
	other, incarnation := "test:"+uuid.NewString(), uuid.New()
	testwait.Must(t, testwait.Err(p.MoveFence(t.Context(), other, uuid.Nil, uuid.New(), incarnation)))
	return p.EndPrepared(t.Context(), gid, commit, other, incarnation)
}

// TestPrepare meets what a participant may: a lock that is not given, a refusal, a commit that is repeated, names that are
// not ours.
func TestPrepare(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	d := h.parts[0]
	testwait.Must(t, d.CanPrepare(t.Context()))
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
