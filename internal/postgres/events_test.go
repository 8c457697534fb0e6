package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func testViews() EventViews {
	return EventViews{
		Purchase: func(p lottery.Purchase) json.RawMessage { return fmt.Appendf(nil, `{"account":%q}`, p.Account) },
		Draw:     func(d *lottery.Draw) json.RawMessage { return fmt.Appendf(nil, `{"campaign":%q}`, d.Campaign) },
	}
}

// lot makes a started auction whose bids have no cooldown, and bidders with money. committed, which may be nil, is told
// what the service commits.
func lot(t *testing.T, db *DB, committed func(uuid.UUID, []auction.Event)) (*auction.Service, uuid.UUID) {
	t.Helper()
	fund(t, newLedgerService(t, db), 0, "seller")
	fund(t, newLedgerService(t, db), 1_000_000, "ann", "bob")
	s := auction.NewService(NewAuctions(db), auction.Options{Committed: committed})
	t.Cleanup(func() { closing(t, s.Close) })
	return s, oneLot(t, s)
}

// oneLot makes an auction of ann and bob and starts it.
func oneLot(t *testing.T, s *auction.Service) uuid.UUID {
	t.Helper()
	a, err := s.Create(t.Context(), own[auction.Op](auction.Create{
		Title: "lot", Currency: "EUR", Seller: "seller", MinBid: 1, MinIncrement: 1,
		Rounds: []auction.NewRound{{Winners: 1, Duration: time.Hour}},
	}))
	if err = errors.Join(err, a.Err); err != nil {
		t.Fatal(err)
	}
	made := a.Result.(*auction.Auction) //nolint:errcheck,forcetypeassert // As Create promises; else the test panics.
	decide(t, s, made.ID, auction.Start{})
	return made.ID
}

func decide(t *testing.T, s *auction.Service, id uuid.UUID, op auction.Op) {
	t.Helper()
	a, err := s.Execute(t.Context(), id, own(op))
	if err = errors.Join(err, a.Err); err != nil {
		t.Fatalf("%+v: %v", op, err)
	}
}

// tampered is a database that is not audited in the end.
func tampered(t *testing.T) *DB {
	t.Helper()
	return open(t, Options{URL: pgtest.NewDatabase(t, migrated)})
}

func TestTheLogOfAnAuctionIsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	db := tampered(t)
	var told []live.Event
	s, id := lot(t, db, func(_ uuid.UUID, events []auction.Event) { told = append(told, LiveEvents(events)...) })
	topic := auction.Topic(id)
	for i := range int64(20) {
		decide(t, s, id, auction.PlaceBid{Account: []string{"ann", "bob"}[i%2], Amount: 10 + i})
	}
	decide(t, s, id, auction.Cancel{})
	log := NewEvents(db, testViews())
	var all []live.Event
	for {
		page, err := log.Events(t.Context(), topic, int64(len(all)), 7)
		testwait.Must(t, err)
		if all = append(all, page...); len(page) < 7 {
			break
		}
	}
	if len(all) != 23 || len(told) != 23 || all[22].Type != string(auction.EventAuctionCancelled) {
		t.Fatalf("the log has %d events, %d were told", len(all), len(told))
	}
	for i, e := range all {
		if e.Seq != int64(i)+1 || e.Type != told[i].Type || !e.At.Equal(told[i].At) || string(e.Data) != string(told[i].Data) || told[i].Seq != e.Seq {
			t.Errorf("log %+v %s\ntold %+v %s", e, e.Data, told[i], told[i].Data)
		}
	}
	if want := `"outbid":[{"account":"ann","amount":10,"rank":2}],"min_winning_bid":12}`; !strings.HasSuffix(string(all[3].Data), want) {
		t.Errorf("the second bid outbids the first: %s", all[3].Data)
	}
	// A bid of a server that did not say whom it outbid.
	exec(t, db, `UPDATE auction_bids SET outbid = DEFAULT, floor = DEFAULT WHERE auction = $1 AND seq = 4`, id)
	if old, err := log.Events(t.Context(), topic, 3, 1); err != nil || !strings.HasSuffix(string(old[0].Data), `"rank":1}`) {
		t.Errorf("an old bid: %s, %v", old[0].Data, err)
	}
	absent := auction.Topic(uuid.New())
	heads, err := log.Heads(t.Context(), []string{topic, absent, "nonsense", "auction:" + id.String() + "x"})
	if err != nil || len(heads) != 1 || heads[topic] != 23 {
		t.Errorf("heads %v, %v", heads, err)
	}
	for _, name := range []string{absent, "nonsense", "auction:" + id.URN(), "campaign:" + id.String()} {
		if _, err := log.Events(t.Context(), name, 0, 1); !errors.Is(err, live.ErrNoTopic) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if page, err := log.Events(t.Context(), topic, 99, 7); err != nil || len(page) != 0 {
		t.Errorf("beyond the end: %v, %v", page, err)
	}
	exec(t, db, `DELETE FROM auction_bids WHERE auction = $1 AND seq = 5`, id)
	if _, err := log.Events(t.Context(), topic, 0, 100); err == nil {
		t.Error("a gap went unnoticed")
	}
}

func TestPruneDeletesWhatIsOldAndTellsFromWhereOn(t *testing.T) {
	t.Parallel()
	db := tampered(t)
	s, id := lot(t, db, nil) // 1 auction.started, 2 round.started
	topic := auction.Topic(id)
	for i := range int64(4) { // 3, 4, 5, 6
		decide(t, s, id, auction.PlaceBid{Account: []string{"ann", "bob"}[i%2], Amount: 10 + i})
	}
	log := NewEvents(db, testViews())
	age := func(below int64) {
		for _, table := range []string{"auction_events", "auction_bids"} {
			exec(t, db, `UPDATE `+table+` SET at = at - interval '30 days' WHERE auction = $1 AND seq < $2`, id, below)
		}
	}
	prune := func(deleted, first int64) {
		t.Helper()
		n, err := log.Prune(t.Context(), 7*24*time.Hour)
		if err != nil || n != deleted {
			t.Errorf("%d deleted, want %d, %v", n, deleted, err)
		}
		if got := ask[int64](t, db, `SELECT first_seq FROM auctions WHERE id = $1`, id); got != first {
			t.Errorf("first %d, want %d", got, first)
		}
		for after := range int64(7) {
			events, err := log.Events(t.Context(), topic, after, 100)
			expired, ok := errors.AsType[*live.ExpiredError](err)
			switch {
			case after+1 < first && (!ok || expired.First != first):
				t.Errorf("after %d: %v, %v", after, events, err)
			case after+1 >= first && (err != nil || len(events) != int(6-after)):
				t.Errorf("after %d: %d events, %v", after, len(events), err)
			}
		}
	}
	prune(0, 1)
	exec(t, db, `UPDATE auctions SET created_at = created_at - interval '60 days' WHERE id = $1`, id)
	prune(0, 1)
	exec(t, db, `UPDATE log_state SET seen_auctions = (SELECT number FROM auctions WHERE id = $1)`, id) // It is of before the log.
	prune(0, 1)
	age(2)
	prune(1, 2)
	age(5)
	prune(1, 5)
	age(7)
	prune(0, 7)
	prune(0, 7)
	if n := ask[int64](t, db, `SELECT count(*) FROM auction_bids WHERE auction = $1`, id); n != 4 {
		t.Errorf("%d bids are left of the history", n)
	}
	decide(t, s, id, auction.PlaceBid{Account: "ann", Amount: 100}) // The auction goes on.
	if events, err := log.Events(t.Context(), topic, 6, 100); err != nil || len(events) != 1 || events[0].Seq != 7 {
		t.Errorf("%v, %v", events, err)
	}
	if _, err := log.Prune(t.Context(), 0); err == nil {
		t.Error("everything was pruned")
	}
}

func TestPruneGoesPastALockedAuction(t *testing.T) {
	t.Parallel()
	db := tampered(t)
	s, first := lot(t, db, nil)
	for _, id := range []uuid.UUID{first, oneLot(t, s)} {
		exec(t, db, `UPDATE auction_events SET at = at - interval '30 days' WHERE auction = $1`, id)
		exec(t, db, `UPDATE auctions SET created_at = created_at - interval '60 days' WHERE id = $1`, id)
	}
	exec(t, db, `UPDATE log_state SET seen_auctions = (SELECT max(number) FROM auctions)`)
	goAway := stranger(t, db, `SELECT FROM auctions WHERE number = (SELECT min(number) FROM auctions) FOR UPDATE`)
	log := NewEvents(db, testViews())
	if n, err := log.Prune(t.Context(), 7*24*time.Hour); n != 2 || !errors.As(err, new(*command.BlockedError)) {
		t.Errorf("%d deleted beside a locked auction, want 2: %v", n, err)
	}
	goAway()
	if n, err := log.Prune(t.Context(), 7*24*time.Hour); n != 2 || err != nil {
		t.Errorf("%d deleted later, want 2: %v", n, err)
	}
}

func TestHeadsAndEventsWithoutADatabase(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	log := NewEvents(db, testViews())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	topic := auction.Topic(uuid.New())
	if _, err := log.Heads(ctx, []string{topic}); err == nil {
		t.Error("heads out of nowhere")
	}
	if _, err := log.Events(ctx, topic, 0, 1); err == nil || errors.Is(err, live.ErrNoTopic) {
		t.Errorf("events out of nowhere: %v", err)
	}
}
