package auction_test

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestRefusalOrder starts from a bid with every fault there is and mends them one by one: each mended fault must uncover
// the next in the order of the contract.
func TestRefusalOrder(t *testing.T) {
	t.Parallel()
	create := standard()
	w := newWorld(t, create, "ann", "ben")
	// What is missing is noticed first, even before the start.
	if e := refusedWith[*ledger.AccountNotFoundError](t, w.do(t, bid("nobody", 1))); e.ID != "nobody" {
		t.Errorf("names %q", e.ID)
	}
	// The seller before the start: no round is open.
	wantError(t, w.do(t, bid("shop", 1)), auction.ErrNotActive)
	w.do(t, auction.Start{})
	wantError(t, w.do(t, bid("shop", 1)), auction.ErrOwnAuction)

	w.place(t, "ann", 100)
	w.place(t, "ben", 200)
	// Too soon, too low, taken and too much.
	_ = refusedWith[*auction.CooldownError](t, w.do(t, bid("ann", 100)))
	w.now = w.now.Add(time.Second)
	_ = refusedWith[*auction.BidTooLowError](t, w.do(t, bid("ann", 100)))
	// Taken and in another currency.
	wantError(t, w.do(t, bid("usd", 200)), auction.ErrAmountTaken)
	// In another currency and too much.
	wantError(t, w.do(t, bid("usd", 100_000)), ledger.ErrCurrencyMismatch)
	if e := refusedWith[*ledger.InsufficientFundsError](t, w.do(t, bid("ann", 100_000))); e.Account != "ann" {
		t.Errorf("names %q", e.Account)
	}
	w.place(t, "ann", 300)
	// Taken and too much.
	w.open("cid", "EUR", 10)
	wantError(t, w.do(t, bid("cid", 300)), auction.ErrAmountTaken)
	_ = refusedWith[*ledger.InsufficientFundsError](t, w.do(t, bid("cid", 301)))
	if w.row.TotalBids != 3 || w.row.Seq != 5 {
		t.Errorf("%d bids and %d events, want 3 and 5", w.row.TotalBids, w.row.Seq)
	}
}

func TestLeastBid(t *testing.T) {
	t.Parallel()
	w := started(t, standard(), "ann")
	if e := refusedWith[*auction.BidTooLowError](t, w.do(t, bid("ann", 9))); e.Least != 10 {
		t.Errorf("least is %d, want 10", e.Least)
	}
	first := w.place(t, "ann", 10)
	w.now = w.now.Add(time.Second)
	if e := refusedWith[*auction.BidTooLowError](t, w.do(t, bid("ann", 14))); e.Least != 15 {
		t.Errorf("least is %d, want 15", e.Least)
	}
	raise := w.place(t, "ann", 15)
	if first.PreviousAmount != 0 || raise.PreviousAmount != 10 || raise.Hold != first.Hold {
		t.Errorf("first %+v, raise %+v", first, raise)
	}
	w.wantMoney(t, "ann", 985, 15)
	if h := w.holds[first.Hold]; h.Amount != 15 || h.Owner != w.row.Topic() {
		t.Errorf("hold %+v", h)
	}
}

func TestFunds(t *testing.T) {
	t.Parallel()
	w := started(t, standard(), "ann")
	_ = refusedWith[*ledger.InsufficientFundsError](t, w.do(t, bid("ann", 1001)))
	w.place(t, "ann", 990)
	w.now = w.now.Add(time.Second)
	// A raise needs the difference only.
	_ = refusedWith[*ledger.InsufficientFundsError](t, w.do(t, bid("ann", 1001)))
	w.place(t, "ann", 1000)
	w.wantMoney(t, "ann", 0, 1000)
}

func TestCooldownEdge(t *testing.T) {
	t.Parallel()
	w := started(t, standard(), "ann", "ben")
	w.place(t, "ann", 10)
	w.now = w.now.Add(time.Second - time.Microsecond)
	if e := refusedWith[*auction.CooldownError](t, w.do(t, bid("ann", 20))); e.RetryAfter != time.Microsecond {
		t.Errorf("retry after %s, want 1µs", e.RetryAfter)
	}
	w.place(t, "ben", 21) // Others do not wait.
	w.now = w.now.Add(time.Microsecond)
	w.place(t, "ann", 22)

	create := standard()
	create.Cooldown = 0
	w = started(t, create, "ann")
	for _, o := range w.run(t, bid("ann", 10), bid("ann", 15), bid("ann", 20)) {
		if o.err != nil {
			t.Error(o.err)
		}
	}
}

func TestUniqueAmounts(t *testing.T) {
	t.Parallel()
	create := standard()
	create.Cooldown = 0
	w := started(t, create, "ann", "ben", "cid")
	out := w.run(t, bid("ann", 50), bid("ben", 50), bid("ann", 60), bid("ben", 50))
	if out[0].err != nil || !errors.Is(out[1].err, auction.ErrAmountTaken) || out[2].err != nil || out[3].err != nil {
		t.Fatalf("answered %v", out)
	}

	create.UniqueAmounts = false
	w = started(t, create, "ann", "ben", "cid")
	w.place(t, "ann", 50)
	if p := w.place(t, "ben", 50); p.Rank != 2 {
		t.Errorf("the later of two equal bids has rank %d, want 2", p.Rank)
	}
	if p := w.place(t, "cid", 51); p.Rank != 1 {
		t.Errorf("the higher bid has rank %d, want 1", p.Rank)
	}
}

// TestRoundEdge bids around the end of a round, with the clock's finest step.
func TestRoundEdge(t *testing.T) {
	t.Parallel()
	create := standard()
	create.AntiSnipe = auction.AntiSnipe{}
	for _, test := range []struct {
		late time.Duration
		in   bool
	}{{-time.Microsecond, true}, {-time.Nanosecond, true}, {0, false}, {time.Microsecond, false}} {
		w := started(t, create, "ann")
		end := w.end()
		w.now = end.Add(test.late)
		// A bid and the close in one transaction: the bid is in the round, or refused.
		out := w.run(t, bid("ann", 10), auction.CloseRound{Round: 1, Term: 1})
		if in := out[0].err == nil; in != test.in {
			t.Errorf("a bid %s from the end: %v", test.late, out[0].err)
		}
		if !test.in {
			wantError(t, out[0], auction.ErrNotActive)
		}
		if isOver := out[1].auction(t) != nil; isOver == test.in {
			t.Errorf("a close %s from the end: %v", test.late, out[1])
		}
	}
}

func TestAntiSnipe(t *testing.T) {
	t.Parallel()
	create := standard()
	create.Cooldown = 0
	w := started(t, create, "ann", "ben")
	end := w.end()
	w.now = end.Add(-10*time.Second - time.Microsecond)
	if p := w.place(t, "ann", 10); !p.RoundEndsAt.Equal(end) {
		t.Errorf("a bid before the window moved the end to %s", p.RoundEndsAt)
	}
	w.now = end.Add(-10 * time.Second)
	p := w.place(t, "ben", 20)
	if want := end.Add(20 * time.Second); !p.RoundEndsAt.Equal(want) || !w.end().Equal(want) {
		t.Errorf("the end is %s, want %s", p.RoundEndsAt, want)
	}
	if want := []auction.EventType{auction.EventBidPlaced, auction.EventRoundExtended}; !slices.Equal(w.types(), want) {
		t.Errorf("events %v, want %v", w.types(), want)
	}
	if e := w.state.Events[1]; e.Seq != p.Seq+1 || e.Data != (auction.RoundExtendedData{Round: 1, EndsAt: auction.Instant(p.RoundEndsAt), Extensions: 1}) {
		t.Errorf("extension %+v", e)
	}
	// Two at once near the new end: the first extends, the second is out of the window again.
	w.now = p.RoundEndsAt.Add(-time.Microsecond)
	w.run(t, bid("ann", 30), bid("ben", 40))
	if want := end.Add(40 * time.Second); !w.end().Equal(want) || w.row.Rounds[0].Extensions != 2 {
		t.Errorf("the end is %s, want %s", w.end(), want)
	}
	// The maximum is reached.
	w.now = w.end().Add(-time.Microsecond)
	if p := w.place(t, "ann", 50); !p.RoundEndsAt.Equal(end.Add(40 * time.Second)) {
		t.Errorf("extended a third time, to %s", p.RoundEndsAt)
	}
	for _, off := range []auction.AntiSnipe{
		{Extension: time.Minute, MaxExtensions: 1},
		{Window: time.Minute, MaxExtensions: 1},
		{Window: time.Minute, Extension: time.Minute},
	} {
		create.AntiSnipe = off
		w := started(t, create, "ann")
		end := w.end()
		w.now = end.Add(-time.Microsecond)
		if p := w.place(t, "ann", 10); !p.RoundEndsAt.Equal(end) {
			t.Errorf("%+v extended the round", off)
		}
	}
}

// TestTransitions asks for every start and cancellation in every state.
func TestTransitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, standard(), "ann")
	a := w.do(t, auction.Start{}).auction(t)
	if a.Status != auction.StatusActive || a.CurrentRound != 1 || !a.StartedAt.Equal(w.now) || !a.Open().EndsAt.Equal(w.now.Add(time.Minute)) {
		t.Errorf("started: %+v", a)
	}
	if want := []auction.EventType{auction.EventAuctionStarted, auction.EventRoundStarted}; !slices.Equal(w.types(), want) {
		t.Errorf("events %v, want %v", w.types(), want)
	}
	// The result is the caller's.
	a.Rounds[0].Winners = 99
	if w.state.Auction.Rounds[0].Winners != 2 {
		t.Error("the result shares memory with the state")
	}
	wantError(t, w.do(t, auction.Start{}), auction.ErrBadTransition)

	w.place(t, "ann", 100)
	a = w.do(t, auction.Cancel{}).auction(t)
	if a.Status != auction.StatusCancelled || a.Rounds[0].Status != auction.RoundCompleted || a.Rounds[1].Status != auction.RoundPending {
		t.Errorf("cancelled: %+v", a)
	}
	w.wantMoney(t, "ann", 1000, 0)
	if w.state.Standing.Len() != 1 || len(w.standing) != 1 {
		t.Error("the record of the standing bid is gone")
	}
	wantError(t, w.do(t, auction.Start{}), auction.ErrBadTransition)
	wantError(t, w.do(t, auction.Cancel{}), auction.ErrBadTransition)
	wantError(t, w.do(t, bid("ann", 200)), auction.ErrNotActive)

	w = newWorld(t, standard())
	a = w.do(t, auction.Cancel{}).auction(t)
	if a.Status != auction.StatusCancelled || a.Rounds[0].Status != auction.RoundPending || a.CurrentRound != 0 {
		t.Errorf("cancelled before the start: %+v", a)
	}
}

// TestClockBehind lets a transaction's clock be behind the auction's last change.
func TestClockBehind(t *testing.T) {
	t.Parallel()
	for _, reload := range []bool{false, true} {
		w := started(t, standard(), "ann", "ben")
		w.now = w.now.Add(5 * time.Second)
		at := w.place(t, "ann", 10).At
		w.now = w.now.Add(-3 * time.Second)
		if reload {
			w.reload()
		}
		if p := w.place(t, "ben", 20); !p.At.Equal(at) {
			t.Errorf("bid at %s after one at %s", p.At, at)
		}
	}
}

// TestCaughtUpTime lets another process start the auction, and the clock of this one be behind.
func TestCaughtUpTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, standard(), "ann")
	behind := auction.NewState(w.copyRow(), nil)
	w.now = w.now.Add(time.Minute)
	w.do(t, auction.Start{})
	behind.CatchUp(w.copyRow(), nil)
	at := w.now
	w.now, w.state = w.now.Add(-time.Second), behind
	if p := w.place(t, "ann", 10); !p.At.Equal(at) {
		t.Errorf("bid at %s, the round started at %s", p.At, at)
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, standard())
	try := func(change func(*auction.Create)) (*auction.Auction, error) {
		create := standard()
		change(&create)
		return auction.DecideCreate(&auction.Creation{Book: w.book([]string{"shop", "usd"})}, create)
	}
	_, err := try(func(c *auction.Create) { c.Seller = "nobody" })
	_ = refusedWith[*ledger.AccountNotFoundError](t, outcome{err: err})
	_, err = try(func(c *auction.Create) { c.Seller = "usd" })
	wantError(t, outcome{err: err}, ledger.ErrCurrencyMismatch)
	a, err := try(func(*auction.Create) {})
	testwait.Must(t, err)
	want := auction.Auction{
		ID: a.ID, Title: "lamp", Status: auction.StatusPending, Currency: "EUR", Seller: "shop",
		Rounds: []auction.Round{
			{Number: 1, Winners: 2, Duration: time.Minute, Status: auction.RoundPending},
			{Number: 2, Winners: 1, Duration: time.Minute, Status: auction.RoundPending},
		},
		MinBid: 10, MinIncrement: 5, AntiSnipe: standard().AntiSnipe, Cooldown: time.Second, UniqueAmounts: true,
		Version: 1, CreatedAt: epoch(),
	}
	if !reflect.DeepEqual(*a, want) {
		t.Errorf("made %+v, want %+v", *a, want)
	}
}

func TestSellerOverflow(t *testing.T) {
	t.Parallel()
	w := started(t, standard(), "ann", "ben")
	w.place(t, "ann", 100)
	w.place(t, "ben", 200)
	w.open("shop", "EUR", math.MaxInt64-299)
	w.now = w.end()
	wantError(t, w.do(t, auction.CloseRound{Round: 1, Term: 1}), ledger.ErrBalanceOverflow)
	w.wantMoney(t, "ann", 900, 100)
	wantError(t, w.do(t, bid("ann", 300)), auction.ErrNotActive)
	w.open("shop", "EUR", math.MaxInt64-300)
	w.closed(t, 1, 1)
	w.wantMoney(t, "shop", math.MaxInt64, 0)
}

// TestUncertainTime decides when the present time is known only as an interval: the bound that refuses counts.
func TestUncertainTime(t *testing.T) {
	t.Parallel()
	w := started(t, standard(), "ann", "ben")
	w.place(t, "ann", 10)
	w.now = w.now.Add(time.Second + 4*time.Millisecond)
	w.uncertain = 5 * time.Millisecond
	if e := refusedWith[*auction.CooldownError](t, w.do(t, bid("ann", 20))); e.RetryAfter != time.Millisecond {
		t.Errorf("retry after %s, want 1ms", e.RetryAfter)
	}
	w.now = w.now.Add(time.Millisecond)
	w.place(t, "ann", 20)

	// Without a cooldown an uncertain time refuses nothing.
	create := standard()
	create.Cooldown = 0
	w = started(t, create, "ann")
	w.uncertain = time.Minute
	w.place(t, "ann", 10)
	w.place(t, "ann", 20)
}

// TestCooldownAfterAClockThatWasAhead: a bid from further in the future than the cooldown and an uncertain time explain delays its
// account's next one no more, and a clock that went back less does not end the cooldown.
func TestCooldownAfterAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	w := started(t, standard(), "ann", "ben")
	right := w.now
	w.now = w.now.Add(30 * time.Second)
	w.place(t, "ann", 10)
	w.now = right
	w.place(t, "ann", 20)

	w = started(t, standard(), "ann", "ben")
	right = w.now
	w.now = w.now.Add(time.Second + auction.MaxAhead)
	w.place(t, "ann", 10)
	w.now = right
	_ = refusedWith[*auction.CooldownError](t, w.do(t, bid("ann", 20)))
}

// TestHorizon: a bid right before the horizon is decided as one now, and one at the horizon is not.
func TestHorizon(t *testing.T) {
	t.Parallel()
	w := newWorld(t, standard(), "ann", "ben")
	if at := w.state.Horizon(); !at.IsZero() {
		t.Errorf("before the start it is %v", at)
	}
	w = started(t, standard(), "ann", "ben")
	end := epoch().Add(time.Minute)
	for n, account := range []string{"ann", "ben"} { // Each of them extends the round.
		at := w.state.Horizon()
		if want := end.Add(-standard().AntiSnipe.Window); !at.Equal(want) {
			t.Fatalf("horizon %d: %v, want %v", n, at, want)
		}
		w.now = at.Add(-time.Microsecond)
		w.place(t, account, int64(10+100*n))
		if got := w.state.Horizon(); !got.Equal(at) {
			t.Errorf("a bid right before the horizon has moved it from %v to %v", at, got)
		}
		w.now = at.Add(2 * time.Second)
		w.place(t, account, int64(50+100*n))
		end = end.Add(standard().AntiSnipe.Extension)
	}
	if at := w.state.Horizon(); !at.Equal(end) {
		t.Errorf("when nothing extends the round any more: %v, want %v", at, end)
	}
	w.now = end.Add(-time.Microsecond)
	w.place(t, "ann", 300)
	w.now = end
	if o := w.do(t, bid("ben", 400)); !errors.Is(o.err, auction.ErrNotActive) {
		t.Errorf("at the horizon: %v", o.err)
	}
}
