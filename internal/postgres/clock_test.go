package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// slowClock makes a process believe that the database's clock is behind what it is.
func slowClock(t *testing.T, db *DB, by time.Duration) {
	t.Helper()
	now := ask[time.Time](t, db, `SELECT clock_timestamp()`)
	at := time.Now().Add(time.Hour)
	db.spec.Clock.Learned(now.Add(time.Hour-by), at, at)
}

// TestAWrongClockLetsNoBidIn has a process believe that a round is far from its end which is over, or about to be extended,
// while it remembers the auction rightly: the database's own clock refuses what was decided.
func TestAWrongClockLetsNoBidIn(t *testing.T) {
	t.Parallel()
	h := newHouse(t, database(t))
	fund(t, newLedgerService(t, h.db), 1000, "seller", "ann", "ben")
	short := h.open(func(c *auction.Create) { c.Rounds[0].Duration = time.Second })
	snipe := h.open(func(c *auction.Create) {
		c.AntiSnipe = auction.AntiSnipe{Window: time.Hour - time.Second, Extension: time.Minute, MaxExtensions: 1}
	})
	for _, id := range []string{"ann", "ben"} {
		if _, err := h.bid(snipe, id, 5+int64(len(id))+int64(id[0])); err != nil {
			t.Fatal(err)
		}
	}
	_, err := h.bid(short, "ann", 5)
	late := errors.Is(err, auction.ErrNotActive) // On a machine that stalls.
	if err != nil && !late {
		t.Fatal(err)
	}
	testwait.Eventually(t, patience, "the round is over", func() bool {
		return ask[bool](t, h.db, `SELECT bool_and(clock_timestamp() > started_at + interval '1.1 seconds') FROM auction_rounds WHERE status = 'active'`)
	})
	slowClock(t, h.db, 10*time.Minute)
	if _, err := h.bid(short, "ben", 50); !errors.Is(err, auction.ErrNotActive) {
		t.Errorf("a bid after the end, by a process whose clock is behind: %v", err)
	}
	slowClock(t, h.db, 10*time.Minute)
	placed, err := h.bid(snipe, "ben", 500)
	if err != nil {
		t.Fatal(err)
	}
	a, err := h.store.Auction(context.Background(), snipe)
	if err != nil {
		t.Fatal(err)
	}
	if r := a.Open(); r.Extensions != 1 {
		t.Errorf("a bid in the window, by a process whose clock is behind, left %d extensions; it was told %v", r.Extensions, placed.RoundEndsAt)
	}
}

// TestABatchThatClosesARoundAndBidsInTheNext: the bid is in time by the end of the round that the batch has opened.
func TestABatchThatClosesARoundAndBidsInTheNext(t *testing.T) {
	t.Parallel()
	h := newHouse(t, database(t))
	fund(t, newLedgerService(t, h.db), 1000, "seller", "ann", "ben")
	id := h.open(nil)
	if _, err := h.bid(id, "ann", 5); err != nil {
		t.Fatal(err)
	}
	h.end(id)
	ops := []auction.Op{auction.CloseRound{Round: 1, Term: 1}, auction.PlaceBid{Account: "ben", Amount: 7}}
	runs := 0
	want := auction.Want{Bidders: []string{"ben"}, Settling: func(s *auction.State) []string { return auction.Settling(s, ops) }}
	if err := h.store.Commit(t.Context(), id, want, func(u *auction.Unit) {
		runs++
		for _, op := range ops {
			if _, err := auction.Decide(u.State, op); err != nil {
				t.Errorf("%#v: %v", op, err)
			}
		}
	}); err != nil || runs != 1 {
		t.Errorf("%v after %d runs", err, runs)
	}
}

// TestABidThatIsWrittenTooLateIsDecidedAgain has a process stop between the decision on a bid and its write, under the auction's lock,
// until the round is over.
func TestABidThatIsWrittenTooLateIsDecidedAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t, database(t))
	fund(t, newLedgerService(t, h.db), 1000, "seller", "ann")
	for _, c := range []struct {
		name     string
		settling func(*auction.State) []string
	}{
		{name: "bids alone"},
		{"a batch that may settle", func(*auction.State) []string { return nil }},
	} {
		id := h.open(func(c *auction.Create) { c.Rounds[0].Duration = time.Second })
		h.store.memory.Forget() // So that bids, too, take the auction's lock.
		var refusal error
		err := h.store.Commit(t.Context(), id, auction.Want{Bidders: []string{"ann"}, Settling: c.settling}, func(u *auction.Unit) {
			// On a machine that stalls, the first decision may be late already.
			if _, refusal = auction.Decide(u.State, auction.PlaceBid{Account: "ann", Amount: 5}); refusal != nil {
				return
			}
			testwait.Eventually(t, patience, "the round is over", func() bool {
				return ask[bool](t, h.db, `SELECT clock_timestamp() >= ends_at FROM auction_rounds WHERE auction = $1 AND round = 1`, id)
			})
		})
		if err != nil || !errors.Is(refusal, auction.ErrNotActive) {
			t.Errorf("%s: committed: %v; decided at last: %v", c.name, err, refusal)
		}
		if n := ask[int](t, h.db, `SELECT count(*) FROM auction_bids WHERE auction = $1`, id); n != 0 {
			t.Errorf("%s: %d bids were written after the end", c.name, n)
		}
	}
}
