package auction_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// memory is a store in which a transaction is a run of decide and nothing is durable: what the service does around its
// store is tested with it, and nothing else. The first runs of each transaction are undone, as if the database had asked
// for another try.
type memory struct {
	auction.Reader

	tb     testing.TB
	mu     sync.Mutex
	world  *world
	reruns int
	fail   func(bidders []string) error // consulted before the commit
	audit  []command.Audit
	known  []idempotency.Record
}

func (m *memory) Create(_ context.Context, accounts []string, _ []idempotency.ID, decide func(*auction.Unit)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := &auction.Unit{Creation: &auction.Creation{Book: m.world.book(accounts)}, Keys: idempotency.NewBatch(nil)}
	decide(u)
	m.audit = append(m.audit, u.Audit...)
	for _, a := range u.Creation.Auctions {
		m.world.row = a
		m.world.reload()
	}
	return nil
}

func (m *memory) Await(context.Context, uuid.UUID) bool { return false }

func (m *memory) Commit(_ context.Context, id uuid.UUID, want auction.Want, decide func(*auction.Unit)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.world
	if id != w.row.ID {
		return &auction.NotFoundError{ID: id}
	}
	for try := 0; ; try++ {
		accounts := slices.Clone(want.Bidders)
		if want.Settling != nil {
			accounts = append(accounts, want.Settling(w.state)...)
		}
		w.state.Begin(w.book(accounts))
		w.state.LoadHolds(accounts)
		u := &auction.Unit{State: w.state, Keys: idempotency.NewBatch(m.known)}
		decide(u)
		if err := m.fail; err != nil {
			if err := err(want.Bidders); err != nil {
				w.state.Undo()
				return err
			}
		}
		if try < m.reruns {
			w.state.Undo()
			continue
		}
		w.save(m.tb)
		m.audit = append(m.audit, u.Audit...)
		m.known = append(m.known, u.Keys.Fresh()...)
		return nil
	}
}

// heard is an observer, and hears of what is committed.
type heard struct {
	mu       sync.Mutex
	bids     map[auction.Outcome]int
	extended int
	closed   int
	events   []auction.Event
	batches  int
}

func (h *heard) BidsDecided(o auction.Outcome, n int) { h.mu.Lock(); h.bids[o] += n; h.mu.Unlock() }
func (h *heard) RoundsExtended(n int)                 { h.mu.Lock(); h.extended += n; h.mu.Unlock() }
func (h *heard) RoundClosed()                         { h.mu.Lock(); h.closed++; h.mu.Unlock() }

func (h *heard) committed(_ uuid.UUID, events []auction.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.batches++
	h.events = append(h.events, events...)
}

func newService(t *testing.T, m *memory) (*auction.Service, *heard) {
	t.Helper()
	h := &heard{bids: map[auction.Outcome]int{}}
	s := auction.NewService(m, auction.Options{Observer: h, Committed: h.committed})
	t.Cleanup(func() {
		testwait.Check(t, s.Close(context.Background()))
	})
	return s, h
}

func execute(t *testing.T, s *auction.Service, id uuid.UUID, op auction.Op) command.Answer {
	t.Helper()
	a, err := s.Execute(t.Context(), id, command.Command[auction.Op]{Op: op, Principal: "boss", RequestID: "r1"})
	testwait.Must(t, err)
	return a
}

func TestServiceFlow(t *testing.T) {
	t.Parallel()
	m := &memory{tb: t, world: newWorld(t, standard(), "ann", "ben"), reruns: 2}
	s, h := newService(t, m)
	made, err := s.Create(t.Context(), command.Command[auction.Op]{Op: standard(), Principal: "boss", RequestID: "r0"})
	if err != nil || made.Err != nil {
		t.Fatal(err, made.Err)
	}
	id := outcome{result: made.Result}.auction(t).ID
	execute(t, s, id, auction.Start{})
	if a := execute(t, s, id, auction.Start{}); !errors.Is(a.Err, auction.ErrBadTransition) {
		t.Errorf("started twice: %v", a.Err)
	}
	m.world.now = m.world.end().Add(-time.Second)
	execute(t, s, id, bid("ann", 100))
	execute(t, s, id, bid("ben", 100))
	m.world.now = m.world.end()
	execute(t, s, id, auction.CloseRound{Round: 1, Term: 1})
	execute(t, s, id, auction.CloseRound{Round: 1, Term: 1})
	execute(t, s, id, auction.Cancel{})

	if h.bids[auction.OutcomeAccepted] != 1 || h.bids[auction.OutcomeAmountTaken] != 1 || len(h.bids) != 2 || h.extended != 1 || h.closed != 1 {
		t.Errorf("observed %v, %d extensions, %d closes", h.bids, h.extended, h.closed)
	}
	if h.batches != 4 || len(h.events) != len(m.world.events) {
		t.Errorf("told of %d transactions and %d events, want 4 and %d", h.batches, len(h.events), len(m.world.events))
	}
	for i, e := range h.events {
		if e.Seq != int64(i+1) {
			t.Errorf("event %d has the number %d", i+1, e.Seq)
		}
	}
	want := []command.Audit{
		{Principal: "boss", RequestID: "r0", Action: "auction.create", Object: id.String()},
		{Principal: "boss", RequestID: "r1", Action: "auction.start", Object: id.String()},
		{Principal: "boss", RequestID: "r1", Action: "auction.cancel", Object: id.String()},
	}
	if !slices.Equal(m.audit, want) {
		t.Errorf("audit %v, want %v", m.audit, want)
	}
}

func TestServiceNotFound(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, &memory{tb: t, world: newWorld(t, standard())})
	for _, id := range []uuid.UUID{uuid.Nil, uuid.Max} {
		a := execute(t, s, id, auction.Start{})
		if e, ok := errors.AsType[*auction.NotFoundError](a.Err); !ok || e.ID != id {
			t.Errorf("%s: %v", id, a.Err)
		}
		a, err := s.Execute(t.Context(), id, command.Command[auction.Op]{Op: bid("ann", 1), Render: func(_ any, err error) command.Rendered {
			return command.Rendered{Status: 404, Body: []byte(err.Error())}
		}})
		if err != nil || a.Status != 404 {
			t.Errorf("%s: rendered %d, %v", id, a.Status, err)
		}
	}
	if _, err := s.Execute(t.Context(), uuid.Max, command.Command[auction.Op]{Op: standard()}); err == nil {
		t.Error("a creation was executed on an auction")
	}
	if _, err := s.Create(t.Context(), command.Command[auction.Op]{Op: auction.Start{}}); err == nil {
		t.Error("a start was taken for a creation")
	}
}

// TestServiceStorm lets many accounts bid at once, while one command poisons every batch that it is in.
func TestServiceStorm(t *testing.T) {
	t.Parallel()
	const bidders = 200
	var names []string
	for i := range bidders {
		names = append(names, fmt.Sprint("b", i))
	}
	create := standard()
	create.Cooldown = 0
	poison := errors.New("poisonous")
	w := started(t, create, append(names, "poison")...)
	id, before := w.row.ID, len(w.events)
	m := &memory{tb: t, world: w, fail: func(bidders []string) error {
		if slices.Contains(bidders, "poison") {
			return poison
		}
		return nil
	}}
	s, h := newService(t, m)
	var wg sync.WaitGroup
	for i, name := range append(names, "poison") {
		for raise := range 3 {
			wg.Go(func() {
				a, err := s.Execute(t.Context(), id, command.Command[auction.Op]{Op: bid(name, int64(10+i+250*raise))})
				if (name == "poison") != errors.Is(err, poison) {
					t.Errorf("%s: %v, %v", name, err, a.Err)
				}
			})
		}
	}
	wg.Wait()
	if w.state.Standing.Len() != bidders {
		t.Errorf("%d bids stand, want %d", w.state.Standing.Len(), bidders)
	}
	total := 0
	for _, n := range h.bids {
		total += n
	}
	if total != 3*bidders || h.bids[auction.OutcomeAccepted] != len(h.events) {
		t.Errorf("observed %v, %d events", h.bids, len(h.events))
	}
	slices.SortFunc(h.events, func(a, b auction.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	for i, e := range h.events {
		if e.Seq != int64(before+i+1) {
			t.Fatalf("event %d has the number %d", before+i+1, e.Seq)
		}
	}
}

// TestServiceRepeat sends one keyed bid twice: it is decided, counted and reported once.
func TestServiceRepeat(t *testing.T) {
	t.Parallel()
	w := started(t, standard(), "ann")
	s, h := newService(t, &memory{tb: t, world: w})
	key := &idempotency.Request{ID: idempotency.NewID("ann", "POST", "/bids", "k")}
	var answers []command.Answer
	for range 2 {
		a, err := s.Execute(t.Context(), w.row.ID, command.Command[auction.Op]{
			Op: bid("ann", 100), Key: key, Render: func(result any, err error) command.Rendered {
				return command.Rendered{Status: 201, Body: fmt.Append(nil, result, err), Decided: true}
			},
		})
		testwait.Must(t, err)
		answers = append(answers, a)
	}
	if string(answers[0].Body) != string(answers[1].Body) {
		t.Errorf("answered %q and %q", answers[0].Body, answers[1].Body)
	}
	if h.bids[auction.OutcomeAccepted] != 1 || len(h.events) != 1 || w.row.TotalBids != 1 {
		t.Errorf("observed %v, %d events, %d bids", h.bids, len(h.events), w.row.TotalBids)
	}
}
