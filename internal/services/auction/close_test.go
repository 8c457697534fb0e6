package auction_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// TestTwoRounds plays an auction to its end.
func TestTwoRounds(t *testing.T) {
	t.Parallel()
	w := started(t, standard(), "ann", "ben", "cid", "dee")
	w.place(t, "ann", 100)
	w.place(t, "ben", 300)
	w.place(t, "cid", 200)
	w.place(t, "dee", 50)

	w.now = w.end().Add(time.Second)
	a := w.closed(t, 1, 7)
	if a.CurrentRound != 2 || a.LeaderTerm != 7 || a.Status != auction.StatusActive || !a.Open().EndsAt.Equal(w.now.Add(time.Minute)) {
		t.Errorf("after the first round: %+v", a)
	}
	want := []auction.EventType{
		auction.EventRoundCompleted, auction.EventBidCarriedOver, auction.EventBidCarriedOver, auction.EventRoundStarted,
	}
	if !slices.Equal(w.types(), want) {
		t.Errorf("events %v, want %v", w.types(), want)
	}
	if data := w.state.Events[1].Data; data != (auction.BidCarriedOverData{Account: "ann", Amount: 100, FromRound: 1, ToRound: 2}) {
		t.Errorf("carried over first: %+v", data)
	}
	winners := w.state.Winners
	if len(winners) != 2 || winners[0].Account != "ben" || winners[1].Account != "cid" || winners[1].Rank != 2 {
		t.Errorf("winners %+v", winners)
	}
	ben := w.placed[1]
	if h := w.holds[ben.Hold]; h.Status != ledger.HoldCaptured || *h.Transfer != winners[0].Transfer {
		t.Errorf("the winner's hold: %+v", h)
	}
	w.wantMoney(t, "shop", 500, 0)
	w.wantMoney(t, "ben", 700, 0)
	w.wantMoney(t, "ann", 900, 100)

	// A winner bids anew, from the minimum, and its earlier bid does not keep it waiting.
	if p := w.place(t, "ben", 10); p.PreviousAmount != 0 || p.Rank != 3 || p.Hold == ben.Hold {
		t.Errorf("the winner's new bid: %+v", p)
	}
	w.now = w.end()
	a = w.closed(t, 2, 7)
	if a.Status != auction.StatusCompleted || a.Open() != nil || !a.EndedAt.Equal(w.now) || a.CurrentRound != 2 {
		t.Errorf("at the end: %+v", a)
	}
	if want := []auction.EventType{auction.EventRoundCompleted, auction.EventAuctionCompleted}; !slices.Equal(w.types(), want) {
		t.Errorf("events %v, want %v", w.types(), want)
	}
	w.wantMoney(t, "shop", 600, 0)
	w.wantMoney(t, "ann", 900, 0)
	w.wantMoney(t, "ben", 700, 0)
	w.wantMoney(t, "dee", 1000, 0)
	if _, won := w.standing["ann"]; won || len(w.standing) != 2 {
		t.Errorf("standing at the end: %v", w.standing)
	}
	// The holds of the losers are closed: nothing can be loaded, or moved, again.
	book := w.book([]string{"dee"})
	w.state.Begin(book)
	w.state.LoadHolds([]string{"dee"})
	if h, err := book.Hold(w.placed[3].Hold); err == nil {
		t.Errorf("loaded as open: %+v", h)
	}
	if o := w.do(t, auction.CloseRound{Round: 2, Term: 8}); o.err != nil || o.auction(t) != nil {
		t.Errorf("closed twice: %+v", o)
	}
	wantError(t, w.do(t, auction.Cancel{}), auction.ErrBadTransition)
}

func TestNobodyBid(t *testing.T) {
	t.Parallel()
	w := started(t, standard())
	w.now = w.end()
	w.closed(t, 1, 1)
	data, ok := w.state.Events[0].Data.(auction.RoundCompletedData)
	if !ok || data.Winners == nil || len(data.Winners) != 0 || len(w.state.Winners) != 0 {
		t.Errorf("winners of nothing: %+v", data)
	}
}

func TestCloseGuards(t *testing.T) {
	t.Parallel()
	w := newWorld(t, standard(), "ann")
	nothing := func(why string, op auction.CloseRound) {
		t.Helper()
		o := w.do(t, op)
		if a := o.auction(t); a != nil || o.err != nil || w.state.Changed() {
			t.Errorf("%s: %+v", why, o)
		}
	}
	nothing("before the start", auction.CloseRound{Round: 1, Term: 9})
	w.do(t, auction.Start{})
	w.now = w.end().Add(-time.Microsecond)
	nothing("a microsecond early", auction.CloseRound{Round: 1, Term: 9})
	w.now = w.now.Add(time.Microsecond)
	nothing("another round", auction.CloseRound{Round: 2, Term: 9})
	w.closed(t, 1, 5) // What closed nothing has left no term behind.
	w.now = w.end()
	nothing("a round that is closed", auction.CloseRound{Round: 1, Term: 5})
	wantError(t, w.do(t, auction.CloseRound{Round: 2, Term: 4}), auction.ErrSuperseded)
	wantError(t, w.do(t, auction.CloseRound{Round: 1, Term: 4}), auction.ErrSuperseded)
	if a := w.closed(t, 2, 5); a.LeaderTerm != 5 {
		t.Errorf("term %d", a.LeaderTerm)
	}
}

// TestWinnerBidsAnewInOneTransaction lets an account win and bid again before anything is written: its row is replaced.
func TestWinnerBidsAnewInOneTransaction(t *testing.T) {
	t.Parallel()
	w := started(t, standard(), "ann", "ben")
	w.place(t, "ann", 100)
	w.now = w.end()
	out := w.run(t, auction.CloseRound{Round: 1, Term: 1}, bid("ann", 20), bid("ben", 30))
	for _, o := range out {
		if o.err != nil {
			t.Fatal(o.err)
		}
	}
	if b := w.standing["ann"]; b.Amount != 20 || b.Round != 2 || b.Hold != w.placed[1].Hold {
		t.Errorf("standing bid %+v", b)
	}
	w.wantMoney(t, "ann", 880, 20)
	w.wantMoney(t, "shop", 100, 0)
}

func TestSettling(t *testing.T) {
	t.Parallel()
	w := started(t, standard(), "ann", "ben", "cid", "dee")
	for i, account := range []string{"ann", "ben", "cid", "dee"} {
		w.place(t, account, int64(100-i))
	}
	ask := func(ops ...auction.Op) []string {
		accounts := auction.Settling(w.state, ops)
		slices.Sort(accounts)
		return slices.Compact(accounts)
	}
	for _, test := range []struct {
		op   auction.Op
		want []string
	}{
		{bid("ann", 1), nil},
		{auction.Start{}, nil},
		{auction.CloseRound{Round: 1}, []string{"ann", "ben", "shop"}},
		{auction.CloseRound{Round: 2}, nil},
		{auction.Cancel{}, []string{"ann", "ben", "cid", "dee"}},
	} {
		if got := ask(test.op); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%+v: %v, want %v", test.op, got, test.want)
		}
	}
	w.now = w.end()
	w.closed(t, 1, 1)
	if got, want := ask(auction.CloseRound{Round: 2}), []string{"cid", "dee", "shop"}; !reflect.DeepEqual(got, want) {
		t.Errorf("the last round: %v, want %v", got, want)
	}
	w.do(t, auction.Cancel{})
	if got := ask(auction.Cancel{}, auction.CloseRound{Round: 2}); got != nil {
		t.Errorf("after the end: %v", got)
	}
}
