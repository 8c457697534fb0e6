package auction_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

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

// TestTheLastRoundGivesTheRestTheirMoneyBack: whoever has won nothing when the last round closes has nothing held any more.
func TestTheLastRoundGivesTheRestTheirMoneyBack(t *testing.T) {
	t.Parallel()
	create := standard()
	create.Rounds = []auction.NewRound{{Winners: 1, Duration: time.Minute}}
	w := started(t, create, "ann", "ben", "cat")
	before := w.accounts["ben"].Available
	for n, account := range []string{"cat", "ben", "ann"} {
		w.place(t, account, int64(100*(n+1)))
	}
	w.now = w.end()
	w.closed(t, 1, 1)
	w.wantMoney(t, "ann", before-300, 0)
	w.wantMoney(t, "ben", before, 0)
	w.wantMoney(t, "cat", before, 0)
}
