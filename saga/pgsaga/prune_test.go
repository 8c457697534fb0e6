package pgsaga_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// TestPrune deletes sagas that have ended with their marks, and nothing else. What was deleted is not known any more.
func TestPrune(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	waiting := make(chan struct{})
	o := h.options(func(*saga.Saga) []saga.Branch {
		return []saga.Branch{h.parts[0].Branch("here", effect), h.parts[1].Branch("there", effect)}
	})
	o.Definitions = append(o.Definitions, saga.Definition{Name: "steps", Plan: func(*saga.Saga) (saga.Plan, error) {
		return saga.Plan{Steps: []saga.Step{h.parts[0].Step("first", effect, effect), h.parts[1].Step("second", effect, effect)}}, nil
	}}, saga.Definition{Name: "endless", Plan: func(*saga.Saga) (saga.Plan, error) {
		return saga.Plan{Steps: []saga.Step{h.parts[0].Step("first", effect, effect), h.parts[1].Step("second", func(ctx context.Context, tx pgx.Tx, c saga.Call) (saga.Outcome, error) {
			select {
			case <-waiting:
				return effect(ctx, tx, c)
			case <-ctx.Done():
				return saga.Outcome{}, ctx.Err()
			}
		}, nil)}}, nil
	}})
	p := newProcess(t, h.pools[0], o)
	id := uuid.New()
	var ended []uuid.UUID
	for _, n := range []saga.New{{ID: id, Name: "steps"}, {Name: "both", Protocol: saga.TwoPhase}} {
		s, err := p.Run(testwait.Context(t, patience), n)
		if err != nil || s.Status != saga.Completed {
			t.Fatalf("%+v, %v", s, err)
		}
		ended = append(ended, s.ID)
	}
	endless, err := p.Start(testwait.Context(t, patience), saga.New{Name: "endless"})
	testwait.Must(t, err)
	marks := func(id uuid.UUID) (n int) {
		t.Helper()
		for _, pool := range h.pools {
			var here int
			testwait.Must(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM "some sagas".saga_marks WHERE saga = $1`, id).Scan(&here))
			n += here
		}
		return n
	}
	testwait.Eventually(t, patience, "the first step", func() bool { return marks(endless.ID) == 1 })
	if n, err := p.Prune(testwait.Context(t, patience), time.Hour); n != 0 || err != nil {
		t.Errorf("what has just ended: %d, %v", n, err)
	}
	for _, id := range ended {
		if _, err := p.Saga(t.Context(), id); err != nil || marks(id) != 2 {
			t.Errorf("%v, %d marks", err, marks(id))
		}
	}
	if n, err := p.Prune(testwait.Context(t, patience), time.Microsecond); n != 2 || err != nil {
		t.Errorf("pruned %d, %v", n, err)
	}
	for _, id := range ended {
		if s, err := p.Saga(t.Context(), id); err == nil || marks(id) != 0 {
			t.Errorf("%+v, %d marks", s, marks(id))
		}
	}
	if _, err := p.Saga(t.Context(), endless.ID); err != nil || marks(endless.ID) != 1 {
		t.Errorf("one that has not ended: %v, %d marks", err, marks(endless.ID))
	}
	// The id stands for another saga from now on.
	if s, err := p.Run(testwait.Context(t, patience), saga.New{ID: id, Name: "steps"}); err != nil || s.Status != saga.Completed {
		t.Errorf("%+v, %v", s, err)
	}
	if got := effects(t, h.pools[0], "saga = $1", id); len(got) != 2 {
		t.Errorf("effects %v", got)
	}
	close(waiting)
	if s, err := p.Wait(testwait.Context(t, patience), endless.ID); err != nil || s.Status != saga.Completed {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := p.Prune(testwait.Context(t, patience), 0); err == nil {
		t.Error("pruned without a retention")
	}
}

// TestPruneSparesDoubt keeps a saga of which something is prepared, and all of them while a database can't be asked.
func TestPruneSparesDoubt(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	log := pgsaga.NewLog(h.pools[0], pgsaga.LogOptions{Schema: testSchema})
	coordinator, err := log.Coordinator(t.Context())
	testwait.Must(t, err)
	// Nobody tends these: what is in doubt stays so.
	participants := map[string]saga.Participant{"here": h.parts[0], "there": h.parts[1]}
	s := saga.NewService(log, saga.Options{Coordinator: coordinator, Participants: participants})
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	made := insertEnded(t, h, 2)
	gid := saga.GID(coordinator, made[0], 1, 0)
	if err := h.parts[1].Prepare(t.Context(), gid, func(ctx context.Context, tx pgx.Tx) error {
		_, err := effect(ctx, tx, saga.Call{Saga: made[0], Step: "late"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	participants["away"] = silent{h.parts[1]}
	if n, err := s.Prune(testwait.Context(t, patience), time.Minute); n != 0 || !errors.Is(err, errFlaky) {
		t.Errorf("with one that does not answer: %d, %v", n, err)
	}
	away := poolOf(t, pgtest.NewDatabase(t, install))
	away.Close()
	participants["away"] = pgsaga.NewDatabase(away, pgsaga.Options{Schema: testSchema})
	if n, err := s.Prune(testwait.Context(t, patience), time.Minute); n != 0 || err == nil {
		t.Errorf("with one away: %d, %v", n, err)
	}
	delete(participants, "away")
	if n, err := s.Prune(testwait.Context(t, patience), time.Minute); n != 1 || err != nil {
		t.Errorf("with one in doubt: %d, %v", n, err)
	}
	if left, err := s.Find(t.Context(), made); err != nil || len(left) != 1 || left[0].ID != made[0] {
		t.Errorf("left %v, %v", left, err)
	}
	testwait.Must(t, end(t, h.parts[1], gid, false))
	if n, err := s.Prune(testwait.Context(t, patience), time.Minute); n != 1 || err != nil {
		t.Errorf("after it: %d, %v", n, err)
	}
}

// silent is a database that does not say what is in doubt in it, and does all else.
type silent struct{ *pgsaga.Database }

func (silent) InDoubt(context.Context, string) ([]saga.Prepared, error) { return nil, errFlaky }

// insertEnded writes sagas that ended an hour ago, each with a mark in both databases.
func insertEnded(t *testing.T, h *twoDatabases, n int) []uuid.UUID {
	t.Helper()
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.New()
	}
	if _, err := h.pools[0].Exec(t.Context(), `INSERT INTO "some sagas".sagas (id, name, protocol, input, status, reason, steps, decided, coordinator,
			cancelled, owner, term, lease_expires_at, version, next_at, attempts, last_error, created_at, updated_at, ended_at)
		SELECT id, 'gone', 'twophase', 'null', 'completed', '', '[]', 1, 'saga:test', false, id, 1, now(), 1, now(), 0, '', now(), now(), now() - interval '1 hour'
		FROM unnest($1::uuid[]) AS id`, ids); err != nil {
		t.Fatal(err)
	}
	for _, pool := range h.pools {
		if _, err := pool.Exec(t.Context(), `INSERT INTO "some sagas".saga_marks (saga, step, outcome, reason, result, at)
			SELECT id, 'step', 'done', '', '', now() FROM unnest($1::uuid[]) AS id`, ids); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

// TestPruneTogether lets several processes delete more than a batch at once: each saga is counted by one of them.
func TestPruneTogether(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	made := insertEnded(t, h, scale(1700, 40_000))
	young := insertEnded(t, h, 3)
	testwait.Must(t, testwait.Err(h.pools[0].Exec(t.Context(), `UPDATE "some sagas".sagas SET ended_at = now() WHERE id = ANY ($1)`, young)))
	var (
		group   sync.WaitGroup
		deleted atomic.Int64
	)
	began := time.Now()
	for range 4 {
		s := saga.NewService(pgsaga.NewLog(h.pools[0], pgsaga.LogOptions{Schema: testSchema}), saga.Options{
			Coordinator: "saga:test", Participants: map[string]saga.Participant{"here": h.parts[0], "there": h.parts[1]},
		})
		group.Go(func() {
			// One that meets others at every row of a batch leaves the rest to them, and would come again.
			for int(deleted.Load()) < len(made) && t.Context().Err() == nil && time.Since(began) < patience {
				n, err := s.Prune(t.Context(), time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				deleted.Add(int64(n))
			}
			testwait.Check(t, s.Close(context.Background()))
		})
	}
	group.Wait()
	t.Logf("%d sagas by 4 processes in %s", len(made), time.Since(began).Round(time.Millisecond))
	var left string
	for i, pool := range h.pools {
		testwait.Must(t, pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM "some sagas".sagas) || ' ' || (SELECT count(*) FROM "some sagas".saga_marks)`).Scan(&left))
		if want := []string{fmt.Sprintf("%d %d", len(young), len(young)), fmt.Sprintf("0 %d", len(young))}[i]; left != want {
			t.Errorf("left in database %d: %s, want %s", i, left, want)
		}
	}
	if int(deleted.Load()) != len(made) {
		t.Errorf("%d were counted as deleted, of %d", deleted.Load(), len(made))
	}
}
