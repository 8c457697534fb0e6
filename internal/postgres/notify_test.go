package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// process is a hub with a pool of its own, as another process would have.
type process struct {
	db  *DB
	hub *live.Hub
}

func newProcess(t *testing.T, url string, o live.Options) *process {
	t.Helper()
	p := &process{db: open(t, Options{URL: url, MaxConns: 4})}
	o.Log, o.Wire = NewEvents(p.db, testViews()), NewNotifications(p.db)
	return p.run(t, o)
}

// run runs the process's hub.
func (p *process) run(t *testing.T, o live.Options) *process {
	t.Helper()
	p.hub = live.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { p.hub.Run(ctx) })
	t.Cleanup(func() { cancel(); p.hub.Close(); running.Wait() })
	return p
}

// follow subscribes from the start and returns a function that waits for the next message.
func (p *process) follow(t *testing.T, topic string) func() live.Message {
	t.Helper()
	s := p.hub.NewSubscriber()
	t.Cleanup(s.Close)
	var since int64
	testwait.Must(t, testwait.Err(s.Subscribe(t.Context(), topic, &since)))
	next := func() live.Message {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for {
			got, err := s.Pull(ctx, make([]live.Message, 0, 1))
			testwait.Must(t, err)
			if len(got) == 1 {
				return got[0]
			}
			select {
			case <-s.Ready():
			case <-ctx.Done():
				t.Fatal("nothing came")
			}
		}
	}
	if m := next(); m.Kind != live.KindSubscribed {
		t.Fatalf("%+v", m)
	}
	return next
}

// listeners waits until n sessions listen, and returns them.
func listeners(t *testing.T, db *DB, n int) {
	t.Helper()
	pgtest.Needs(t, pgkit.Notify)
	testwait.Eventually(t, patience, fmt.Sprintf("%d processes listen", n), func() bool {
		return ask[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND application_name = 'fairlead live' AND query LIKE 'LISTEN%' AND state = 'idle'`) == n
	})
}

// TestTwoProcessesTellEachOther commits in one process and follows in both. Polling is too rare to help.
func TestTwoProcessesTellEachOther(t *testing.T) {
	t.Parallel()
	url := database(t)
	a, b := newProcess(t, url, live.Options{PollEvery: time.Hour}), newProcess(t, url, live.Options{PollEvery: time.Hour})
	s, id := lot(t, a.db, func(id uuid.UUID, events []auction.Event) {
		a.hub.Committed(auction.Topic(id), events[len(events)-1].Seq, func() []live.Event { return LiveEvents(events) })
	})
	listeners(t, a.db, 2)
	topic := auction.Topic(id)
	nexts := []func() live.Message{a.follow(t, topic), b.follow(t, topic)}
	const bids = 50
	for i := range int64(bids) {
		decide(t, s, id, auction.PlaceBid{Account: []string{"ann", "bob"}[i%2], Amount: 10 + i})
	}
	for seq := range int64(bids + 2) {
		first, second := nexts[0](), nexts[1]()
		if first.Seq != seq+1 || string(first.JSON) != string(second.JSON) {
			t.Fatalf("event %d: %s and %s", seq+1, first.JSON, second.JSON)
		}
	}
	b.hub.Broadcast(topic, live.Event{Type: "countdown", At: time.Now(), Data: json.RawMessage(`1`)})
	b.hub.Broadcast(topic, live.Event{Type: "countdown", At: time.Now(), Data: json.RawMessage(`2`)})
	for _, next := range nexts {
		for want := 1; want <= 2; want++ { // Each once, also where it came from.
			if m := next(); m.Type != "countdown" || m.Seq != 0 || !strings.HasSuffix(string(m.JSON), fmt.Sprintf(`"data":%d}`, want)) {
				t.Errorf("want countdown %d, got %s", want, m.JSON)
			}
		}
	}
	decide(t, s, id, auction.PlaceBid{Account: "ann", Amount: 1000})
	for _, next := range nexts {
		if m := next(); m.Seq != bids+3 {
			t.Errorf("got %s", m.JSON)
		}
	}
}

// TestNothingIsLostWithTheListeningConnection ends that connection while events are committed.
func TestNothingIsLostWithTheListeningConnection(t *testing.T) {
	t.Parallel()
	url := database(t)
	a, b := newProcess(t, url, live.Options{}), newProcess(t, url, live.Options{PollEvery: 50 * time.Millisecond})
	s, id := lot(t, a.db, func(id uuid.UUID, events []auction.Event) {
		a.hub.Committed(auction.Topic(id), events[len(events)-1].Seq, nil)
	})
	listeners(t, a.db, 2)
	next := b.follow(t, auction.Topic(id))
	const bids = 60
	for i := range int64(bids) {
		if i%20 == 10 {
			exec(t, a.db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name = 'fairlead live'`)
		}
		decide(t, s, id, auction.PlaceBid{Account: []string{"ann", "bob"}[i%2], Amount: 10 + i})
	}
	for seq := range int64(bids + 2) {
		if m := next(); m.Seq != seq+1 {
			t.Fatalf("want %d, got %s", seq+1, m.JSON)
		}
	}
	listeners(t, a.db, 2) // They came back.
}

func TestNotificationsAreLargeAndManyAndOfOthers(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	n := NewNotifications(db)
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan live.Hint, 10_000)
	ended := make(chan error, 1)
	go func() { ended <- n.Receive(ctx, func(h live.Hint) { heard <- h }) }()
	listeners(t, db, 1)
	exec(t, db, `SELECT pg_notify('fairlead_live', '{"not":"ours"')`)
	var hints []live.Hint
	for i := range int64(1000) {
		hints = append(hints, live.Hint{From: uuid.NewString(), Topic: auction.Topic(uuid.New()), Seq: i + 1})
	}
	whole := live.Event{Type: "countdown", Data: json.RawMessage(`"` + strings.Repeat("x", 7000) + `"`)}
	large := live.Event{Type: "countdown", Data: json.RawMessage(`"` + strings.Repeat("x", 8000) + `"`)}
	hints = append(hints, live.Hint{Topic: "a", Event: &whole}, live.Hint{Topic: "a", Event: &large}, live.Hint{Topic: "end"})
	if err := n.Publish(t.Context(), hints); !errors.Is(err, errLargeHint) {
		t.Errorf("too large: %v", err)
	}
	for i, want := range append(hints[:1001:1001], hints[1002]) {
		select {
		case got := <-heard:
			if got.From != want.From || got.Topic != want.Topic || got.Seq != want.Seq || (want.Event != nil) != (got.Event != nil) {
				t.Fatalf("%d: got %+v, want %+v", i, got, want)
			}
		case <-time.After(patience):
			t.Fatalf("%d never came", i)
		}
	}
	testwait.Check(t, n.Publish(t.Context(), nil))
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the end: %v", err)
	}
}
