package pgsaga_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// idle is a service on a log that reconciles only when it is asked to.
func (h *twoDatabases) idle(t *testing.T, log *pgxpool.Pool, change func(*saga.Options)) *saga.Service {
	t.Helper()
	l := pgsaga.NewLog(log, pgsaga.LogOptions{Schema: testSchema})
	coordinator, err := l.Coordinator(t.Context())
	testwait.Must(t, err)
	o := h.options(nil)
	o.Coordinator, o.DoubtAge, o.FenceEvery = coordinator, time.Microsecond, 20*time.Millisecond
	if change != nil {
		change(&o)
	}
	s := saga.NewService(l, o)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func (h *twoDatabases) fence(t *testing.T, i int, coordinator string) *saga.Fence {
	t.Helper()
	f, err := h.parts[i].Fence(t.Context(), coordinator)
	if err != nil || f == nil {
		t.Fatalf("%+v, %v", f, err)
	}
	return f
}

// restored is a log that was restored to before production's last transaction, of which one branch is committed.
func (h *twoDatabases) restored(t *testing.T) (production, restored *pgxpool.Pool, coordinator string, id uuid.UUID) {
	t.Helper()
	pg, production := logServer(t)
	first := h.idle(t, production, nil)
	testwait.Must(t, first.Resolve(t.Context()))
	restored = poolOf(t, pgtest.CopyOf(t, pg).URL())
	coordinator, err := pgsaga.NewLog(production, pgsaga.LogOptions{Schema: testSchema}).Coordinator(t.Context())
	testwait.Must(t, err)
	id = h.halfCommitted(t, production, coordinator)
	tokens := [2]uuid.UUID{h.fence(t, 0, coordinator).Token, h.fence(t, 1, coordinator).Token}
	s := h.idle(t, production, func(o *saga.Options) {
		o.Participants = map[string]saga.Participant{"here": fenceOnly{h.parts[0]}, "there": fenceOnly{h.parts[1]}}
	})
	testwait.Eventually(t, patience, "production goes on", func() bool {
		testwait.Must(t, s.Resolve(t.Context()))
		return h.fence(t, 0, coordinator).Token != tokens[0] && h.fence(t, 1, coordinator).Token != tokens[1]
	})
	return production, restored, coordinator, id
}

// fenceOnly shows no prepared transactions: production has left its fence and done nothing else.
type fenceOnly struct{ *pgsaga.Database }

func (fenceOnly) InDoubt(context.Context, string) ([]saga.Prepared, error) { return nil, nil }

func adopt(t *testing.T, s *saga.Service) ([]string, error) {
	t.Helper()
	a, err := s.Adopt(t.Context(), command.Command[struct{}]{})
	made, _ := a.Result.(saga.Adoption)
	return made.Participants, errors.Join(err, a.Err)
}

// dying lets its process die before it moves this fence.
type dying struct {
	*pgsaga.Database

	left *atomic.Int64 // fences that it lives to move
}

func (d dying) MoveFence(ctx context.Context, coordinator string, from, token, incarnation uuid.UUID) (*saga.Fence, error) {
	if d.left.Add(-1) < 0 {
		return nil, errFlaky
	}
	return d.Database.MoveFence(ctx, coordinator, from, token, incarnation)
}

// TestAdopt restores a log to an earlier point, which its participants notice, and lets an operator claim it, by a process
// that dies after each write.
func TestAdopt(t *testing.T) {
	t.Parallel()
	for lives := range 3 {
		t.Run(fmt.Sprintf("dies after %d fences", lives), func(t *testing.T) {
			t.Parallel()
			h := openTwo(t)
			production, restored, coordinator, id := h.restored(t)
			branch := h.inDoubt(t)
			still := func(when string, s *saga.Service) {
				t.Helper()
				testwait.Check(t, s.Resolve(t.Context()))
				doubts, _ := s.InDoubt(t.Context())
				if len(doubts) != 1 || doubts[0].Verdict != saga.Undecided || len(h.inDoubt(t)) != len(branch) {
					t.Errorf("%s: %+v", when, doubts)
				}
			}
			still("before the adoption", h.idle(t, restored, nil))
			if _, err := adopt(t, h.idle(t, restored, func(o *saga.Options) { o.FenceEvery = time.Hour })); !errors.Is(err, saga.ErrCoordinatorActive) {
				t.Errorf("adopted beside a coordinator at work: %v", err)
			}
			var left atomic.Int64
			left.Store(int64(lives))
			s := h.idle(t, restored, func(o *saga.Options) {
				o.Participants = map[string]saga.Participant{"here": dying{h.parts[0], &left}, "there": dying{h.parts[1], &left}}
			})
			testwait.Eventually(t, patience, "production is silent", func() bool {
				names, err := adopt(t, s)
				if err != nil && !errors.Is(err, saga.ErrCoordinatorActive) {
					t.Fatal(err)
				}
				return err == nil && len(names) == 2
			})
			for range 2 * lives { // Each participant is looked at, and the process is dead.
				_ = s.Resolve(t.Context())
			}
			if lives < 2 {
				still("half adopted", s)
			}
			next := h.idle(t, restored, nil)
			if lives == 1 {
				// Production comes back in the middle, and may go on where the fence was not moved: then neither ends anything.
				still("for production", h.idle(t, production, nil))
				testwait.Eventually(t, patience, "the second adoption", func() bool {
					_, err := adopt(t, next)
					return err == nil
				})
			}
			testwait.Eventually(t, patience, "nothing in doubt", func() bool {
				testwait.Must(t, next.Resolve(t.Context()))
				return len(h.inDoubt(t)) == 0
			})
			if here, there := effects(t, h.pools[0], "saga = $1", id), effects(t, h.pools[1], "saga = $1", id); len(here) != 1 || len(there) != 1 {
				t.Errorf("effects: %v here, %v there", here, there)
			}
			if names, err := adopt(t, next); err != nil || len(names) != 0 {
				t.Errorf("nothing is left to adopt: %v, %v", names, err)
			}
			testwait.Eventually(t, patience, "production is disowned", func() bool {
				testwait.Must(t, h.parts[0].Prepare(t.Context(), saga.GID(coordinator, uuid.New(), 1, 0), nothing))
				doubts, _ := h.idle(t, production, nil).InDoubt(t.Context())
				testwait.Must(t, next.Resolve(t.Context()))
				return len(doubts) == 1 && doubts[0].Reason == saga.ReasonDisowned
			})
			testwait.Eventually(t, patience, "nothing in doubt", func() bool { return next.Resolve(t.Context()) == nil && len(h.inDoubt(t)) == 0 })
		})
	}
}

func nothing(context.Context, pgx.Tx) error { return nil }

// late lets its process stand still when it is about to end a transaction.
type late struct {
	*pgsaga.Database

	about chan struct{}
	goOn  chan struct{}
}

func (l late) EndPrepared(ctx context.Context, gid string, commit bool, coordinator string, incarnation uuid.UUID) error {
	l.about <- struct{}{}
	<-l.goOn
	return l.Database.EndPrepared(ctx, gid, commit, coordinator, incarnation)
}

// TestLateResolver has a process decide to end a branch and do so when another incarnation has long adopted it.
func TestLateResolver(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	pg, production := logServer(t)
	slow := late{h.parts[1], make(chan struct{}, 1), make(chan struct{})}
	old := h.idle(t, production, func(o *saga.Options) { o.Participants["there"] = slow })
	testwait.Must(t, old.Resolve(t.Context()))
	copied := h.idle(t, poolOf(t, pgtest.CopyOf(t, pg).URL()), nil)
	coordinator, err := pgsaga.NewLog(production, pgsaga.LogOptions{Schema: testSchema}).Coordinator(t.Context())
	testwait.Must(t, err)
	gid := saga.GID(coordinator, uuid.New(), 1, 1)
	testwait.Must(t, h.parts[1].Prepare(t.Context(), gid, nothing))
	ended := make(chan error, 1)
	go func() { ended <- old.Resolve(context.Background()) }()
	<-slow.about
	testwait.Eventually(t, patience, "the adoption", func() bool {
		if _, err := adopt(t, copied); err != nil && !errors.Is(err, saga.ErrCoordinatorActive) {
			t.Fatal(err)
		}
		f, err := h.parts[1].InDoubt(t.Context(), "none") // Only to look.
		if err != nil || len(f) > 0 {
			t.Fatal(f, err)
		}
		before := h.fence(t, 1, coordinator).Incarnation
		doubts, _ := copied.InDoubt(t.Context())
		return before == h.fence(t, 1, coordinator).Incarnation && len(doubts) == 1 && doubts[0].Verdict == saga.RollbackBranch
	})
	close(slow.goOn)
	if err := <-ended; !errors.Is(err, saga.ErrFenced) || len(h.inDoubt(t)) != 1 {
		t.Errorf("ended late: %v, left %v", err, h.inDoubt(t))
	}
	if err := copied.Resolve(t.Context()); err != nil || len(h.inDoubt(t)) != 0 {
		t.Errorf("%v, left %v", err, h.inDoubt(t))
	}
}

// TestFenceIsTakenBetween takes a fence while a session is in the middle of ending a transaction behind it.
func TestFenceIsTakenBetween(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	d, first, second := h.parts[0], uuid.New(), uuid.New()
	tokens := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	move := func(from, to, incarnation uuid.UUID) (*saga.Fence, error) {
		return d.MoveFence(t.Context(), "saga:test", from, to, incarnation)
	}
	if f, err := move(uuid.Nil, tokens[0], first); err != nil || f == nil {
		t.Fatal(f, err)
	}
	conn, err := h.pools[0].Acquire(t.Context())
	testwait.Must(t, err)
	defer conn.Release()
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `SELECT pg_advisory_lock_shared(hashtextextended('saga fence saga:test', 0))`)))
	if f, err := move(tokens[0], tokens[1], second); err == nil {
		t.Errorf("taken: %+v", f)
	}
	if f, err := move(tokens[0], tokens[1], first); err != nil || f == nil {
		t.Errorf("its own: %+v, %v", f, err)
	}
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `SELECT pg_advisory_unlock_all()`)))
	if f, err := move(tokens[0], tokens[2], second); err != nil || f != nil {
		t.Errorf("with a token that is gone: %+v, %v", f, err)
	}
	if f, err := move(tokens[1], tokens[2], second); err != nil || f == nil {
		t.Errorf("after it: %+v, %v", f, err)
	}
	gid := saga.GID("saga:test", uuid.New(), 1, 0)
	testwait.Must(t, d.Prepare(t.Context(), gid, nothing))
	for _, commit := range []bool{true, false} {
		if err := d.EndPrepared(t.Context(), gid, commit, "saga:test", first); !errors.Is(err, saga.ErrFenced) {
			t.Errorf("ended by the first: %v", err)
		}
	}
	if err := d.EndPrepared(t.Context(), gid, false, "saga:other", first); !errors.Is(err, saga.ErrFenced) {
		t.Errorf("ended without a fence: %v", err)
	}
	testwait.Check(t, d.EndPrepared(t.Context(), gid, false, "saga:test", second))
}

// TestStoppedCopy starts production and a copy of its data directory, made while nothing ran, at the same time: one of them,
// and no more, may end transactions.
func TestStoppedCopy(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	pg, production := logServer(t)
	testwait.Must(t, h.idle(t, production, nil).Resolve(t.Context()))
	copied := poolOf(t, pgtest.CopyOf(t, pg).URL())
	pgtest.Restart(t, pg)
	twins := []*saga.Service{h.idle(t, production, nil), h.idle(t, copied, nil)}
	coordinator, err := pgsaga.NewLog(copied, pgsaga.LogOptions{Schema: testSchema}).Coordinator(t.Context())
	testwait.Must(t, err)
	// Nothing but the age of what they know nothing of lets them roll this back; they are not so old.
	testwait.Must(t, h.parts[0].Prepare(t.Context(), saga.GID(coordinator, uuid.New(), 1, 0), nothing))
	defer func() {
		for _, gid := range h.inDoubt(t) {
			testwait.Check(t, end(t, h.parts[0], gid, false))
		}
	}()
	testwait.Eventually(t, patience, "one holds the fences, and the other is disowned", func() bool {
		held, disowned := 0, 0
		for _, s := range twins {
			doubts, failures := s.InDoubt(t.Context())
			if len(doubts) != 1 {
				t.Fatalf("%+v, %v", doubts, failures)
			}
			switch doubts[0].Reason {
			case saga.ReasonDisowned:
				disowned++
			case saga.ReasonUnproven, saga.ReasonNotAsked:
			default:
				held++
			}
		}
		return held == 1 && disowned == 1
	})
}

// TestCopyByContents makes a log's database anew from its contents, in the same server.
func TestCopyByContents(t *testing.T) {
	t.Parallel()
	h := openTwo(t)
	pg, production := logServer(t)
	testwait.Must(t, h.idle(t, production, nil).Resolve(t.Context()))
	production.Close()
	conn := pgtest.Connect(t, pg.URL())
	var own string
	testwait.Must(t, conn.QueryRow(t.Context(), `SELECT current_database()`).Scan(&own))
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `CREATE DATABASE twin TEMPLATE `+pgx.Identifier{own}.Sanitize())))
	twin := poolOf(t, strings.Replace(pg.URL(), "/"+own+"?", "/twin?", 1))
	s := h.idle(t, twin, nil)
	if _, err := s.Prune(t.Context(), time.Hour); !errors.Is(err, saga.ErrDisowned) {
		t.Errorf("pruned production's marks: %v", err)
	}
	coordinator, err := pgsaga.NewLog(twin, pgsaga.LogOptions{Schema: testSchema}).Coordinator(t.Context())
	testwait.Must(t, err)
	testwait.Must(t, h.parts[0].Prepare(t.Context(), saga.GID(coordinator, uuid.New(), 1, 0), nothing))
	if doubts, _ := s.InDoubt(t.Context()); len(doubts) != 1 || doubts[0].Reason != saga.ReasonDisowned {
		t.Errorf("%+v", doubts)
	}
	testwait.Eventually(t, patience, "the adoption", func() bool {
		_, err := adopt(t, s)
		return err == nil
	})
	testwait.Eventually(t, patience, "the rollback", func() bool { return s.Resolve(t.Context()) == nil && len(h.inDoubt(t)) == 0 })
}

// TestUnknownCluster asks as a role that may not know the cluster's identifier.
func TestUnknownCluster(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	role := fmt.Sprintf("plain_%d", time.Now().UnixNano())
	exec := func(sql string) {
		t.Helper()
		testwait.Must(t, testwait.Err(pool.Exec(t.Context(), sql)))
	}
	exec(`CREATE ROLE ` + role)
	exec(`GRANT ALL ON SCHEMA "some sagas" TO ` + role)
	exec(`GRANT ALL ON ALL TABLES IN SCHEMA "some sagas" TO ` + role)
	exec(`REVOKE EXECUTE ON FUNCTION pg_control_system() FROM public`)
	c := pool.Config()
	c.ConnConfig.RuntimeParams["role"] = role
	plain, err := pgxpool.NewWithConfig(t.Context(), c)
	testwait.Must(t, err)
	log := pgsaga.NewLog(plain, pgsaga.LogOptions{Schema: testSchema})
	id, err := log.Coordinator(t.Context())
	if err != nil || !strings.HasPrefix(id, "saga:") {
		t.Errorf("%q, %v", id, err)
	}
	first, err := log.Incarnation(t.Context())
	if err != nil || first.Copied {
		t.Errorf("%+v, %v", first, err)
	}
	if again, err := log.Incarnation(t.Context()); err != nil || again != first {
		t.Errorf("%+v, %v; want %+v", again, err, first)
	}
	// The same database, by who knows more of it.
	if other, err := pgsaga.NewLog(pool, pgsaga.LogOptions{Schema: testSchema}).Incarnation(t.Context()); err != nil || other.Copied {
		t.Errorf("%+v, %v", other, err)
	}
	if same, err := pgsaga.NewLog(pool, pgsaga.LogOptions{Schema: testSchema}).Coordinator(t.Context()); err != nil || same != id {
		t.Errorf("%q, %v", same, err)
	}
	plain.Close()
	exec(`DROP OWNED BY ` + role)
	exec(`DROP ROLE ` + role)
}

// TestMovedAlone moves the database of a log that has no other participant, by its contents: there is nobody to disown it.
func TestMovedAlone(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	h := &twoDatabases{parts: [2]*pgsaga.Database{pgsaga.NewDatabase(pool, pgsaga.Options{Schema: testSchema})}}
	alone := func(o *saga.Options) {
		o.Home, o.Participants = "here", map[string]saga.Participant{"here": h.parts[0]}
	}
	first := h.idle(t, pool, alone)
	testwait.Must(t, first.Resolve(t.Context()))
	coordinator, err := pgsaga.NewLog(pool, pgsaga.LogOptions{Schema: testSchema}).Coordinator(t.Context())
	testwait.Must(t, err)
	before := h.fence(t, 0, coordinator).Incarnation
	testwait.Must(t, testwait.Err(pool.Exec(t.Context(), `UPDATE "some sagas".saga_coordinator SET instance = '1/2/00000001/3'`)))
	moved := h.idle(t, pool, alone)
	testwait.Check(t, testwait.Err(moved.Prune(t.Context(), time.Hour)))
	if h.fence(t, 0, coordinator).Incarnation == before {
		t.Error("it goes on in the life of the original")
	}
}
