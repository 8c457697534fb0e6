package auction_test

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func epoch() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// world is what a database would hold: accounts, holds, an auction's rows and its history, and a state that is kept from
// one transaction to the next. It applies what the core asks to be written, and nothing else.
type world struct {
	now       time.Time
	uncertain time.Duration
	ids       uint64
	accounts  map[string]ledger.Account
	holds     map[uuid.UUID]ledger.Hold

	row      auction.Auction
	standing map[string]auction.Bid
	placed   []auction.Placed
	winners  []auction.Winner
	events   []auction.Event

	state *auction.State
}

// outcome is what one operation was answered.
type outcome struct {
	result any
	err    error
}

// auction is the result, which must be an auction, or the nil of a close that had nothing to close.
func (o outcome) auction(tb testing.TB) *auction.Auction {
	tb.Helper()
	a, ok := o.result.(*auction.Auction)
	if !ok {
		tb.Fatalf("answered %v, %v; want an auction", o.result, o.err)
	}
	return a
}

// standard is an auction that takes part in most tests: two rounds with two places and one, of a minute.
func standard() auction.Create {
	return auction.Create{
		Title: "lamp", Currency: "EUR", Seller: "shop",
		Rounds:        []auction.NewRound{{Winners: 2, Duration: time.Minute}, {Winners: 1, Duration: time.Minute}},
		MinBid:        10,
		MinIncrement:  5,
		AntiSnipe:     auction.AntiSnipe{Window: 10 * time.Second, Extension: 20 * time.Second, MaxExtensions: 2},
		Cooldown:      time.Second,
		UniqueAmounts: true,
	}
}

// newWorld makes an auction, pending, with a seller "shop" and bidders with 1000 each. The account "usd" has another
// currency.
func newWorld(tb testing.TB, create auction.Create, bidders ...string) *world {
	tb.Helper()
	w := &world{
		now: epoch(), accounts: map[string]ledger.Account{}, holds: map[uuid.UUID]ledger.Hold{},
		standing: map[string]auction.Bid{},
	}
	for _, id := range bidders {
		w.open(id, "EUR", 1000)
	}
	w.open("shop", "EUR", 0)
	w.open("usd", "USD", 1000)
	cr := &auction.Creation{Book: w.book([]string{create.Seller})}
	testwait.Must(tb, testwait.Err(auction.DecideCreate(cr, create)))
	w.row = cr.Auctions[0]
	w.reload()
	return w
}

// started makes an auction whose first round is open.
func started(tb testing.TB, create auction.Create, bidders ...string) *world {
	tb.Helper()
	w := newWorld(tb, create, bidders...)
	if o := w.do(tb, auction.Start{}); o.err != nil {
		tb.Fatal(o.err)
	}
	return w
}

func (w *world) open(id, currency string, available int64) {
	w.accounts[id] = ledger.Account{ID: id, Currency: currency, Available: available, Version: 1, CreatedAt: w.now}
}

func (w *world) newID() (id uuid.UUID) {
	w.ids++
	binary.BigEndian.PutUint64(id[8:], w.ids)
	return id
}

func (w *world) book(accounts []string) *ledger.Book {
	b := ledger.NewBook(w.now, w.newID)
	for _, id := range accounts {
		if a, ok := w.accounts[id]; ok {
			b.LoadAccount(a)
		}
	}
	return b
}

// reload reads the state again, as another process would.
func (w *world) reload() {
	var bids []auction.Bid
	if w.row.Status != auction.StatusCompleted && w.row.Status != auction.StatusCancelled {
		bids = slices.Collect(maps.Values(w.standing))
	}
	w.state = auction.NewState(w.copyRow(), bids)
}

// copyRow copies the row so that what the state does to it is not seen.
func (w *world) copyRow() *auction.Auction {
	row := w.row
	row.Rounds = slices.Clone(row.Rounds)
	return &row
}

// decide runs operations in one transaction that is neither committed nor undone.
func (w *world) decide(tb testing.TB, ops ...auction.Op) []outcome {
	tb.Helper()
	accounts := auction.Settling(w.state, ops)
	for _, op := range ops {
		if bid, ok := op.(auction.PlaceBid); ok {
			accounts = append(accounts, bid.Account)
		}
	}
	w.state.Begin(w.book(accounts))
	w.state.Uncertain = w.uncertain
	w.state.LoadHolds(accounts)
	outcomes := make([]outcome, 0, len(ops))
	for _, op := range ops {
		result, err := auction.Decide(w.state, op)
		outcomes = append(outcomes, outcome{result, err})
	}
	return outcomes
}

// run commits operations as one transaction.
func (w *world) run(tb testing.TB, ops ...auction.Op) []outcome {
	tb.Helper()
	outcomes := w.decide(tb, ops...)
	w.save(tb)
	return outcomes
}

// do commits one operation.
func (w *world) do(tb testing.TB, op auction.Op) outcome {
	tb.Helper()
	return w.run(tb, op)[0]
}

// save writes what has changed, checking what a database would check.
func (w *world) save(tb testing.TB) {
	tb.Helper()
	s := w.state
	c := s.Book.Changes()
	if !s.Changed() {
		if len(c.UpdatedAccounts)+len(c.CreatedHolds)+len(c.UpdatedHolds)+len(s.Events)+len(s.Placed)+len(s.Winners) > 0 {
			tb.Fatal("something is to be written, but nothing has changed")
		}
		return
	}
	if s.Auction.Version != w.row.Version+1 {
		tb.Fatalf("version %d became %d", w.row.Version, s.Auction.Version)
	}
	for _, a := range c.UpdatedAccounts {
		w.accounts[a.ID] = a.Account
	}
	for _, h := range c.CreatedHolds {
		w.holds[h.ID] = h
	}
	for _, h := range c.UpdatedHolds {
		if w.holds[h.ID].Status != ledger.HoldOpen {
			tb.Fatalf("hold %s was %s and is written again", h.ID, w.holds[h.ID].Status)
		}
		w.holds[h.ID] = h
	}
	rounds := w.row.Rounds
	w.row = *s.Auction
	w.row.Rounds = rounds
	for _, r := range s.ChangedRounds() {
		w.row.Rounds[r.Number-1] = r
	}
	w.apply(tb)
	w.placed = append(w.placed, s.Placed...)
	w.winners = append(w.winners, s.Winners...)
	w.events = append(w.events, s.Events...)
	s.Keep()
}

// apply writes the changes of the standing bids.
func (w *world) apply(tb testing.TB) {
	tb.Helper()
	added, raised, removed := w.state.StandingChanges()
	for _, account := range removed {
		if _, ok := w.standing[account]; !ok {
			tb.Fatalf("%s has no bid that could be removed", account)
		}
		delete(w.standing, account)
	}
	for _, r := range raised {
		if was, ok := w.standing[r.Account]; !ok || was.Amount != r.Before {
			tb.Fatalf("%s has no bid of %d that could be raised", r.Account, r.Before)
		}
		w.standing[r.Account] = r.Bid
	}
	for _, b := range added {
		if _, ok := w.standing[b.Account]; ok {
			tb.Fatalf("%s has a bid already", b.Account)
		}
		w.standing[b.Account] = b
	}
}

// end is when the open round ends.
func (w *world) end() time.Time { return *w.state.Auction.Open().EndsAt }

func bid(account string, amount int64) auction.Op {
	return auction.PlaceBid{Account: account, Amount: amount}
}

// place commits a bid that must be accepted.
func (w *world) place(tb testing.TB, account string, amount int64) auction.Placed {
	tb.Helper()
	o := w.do(tb, bid(account, amount))
	if o.err != nil {
		tb.Fatalf("bid of %d by %s: %v", amount, account, o.err)
	}
	p, ok := o.result.(auction.Placed)
	if !ok {
		tb.Fatalf("a bid was answered with a %T", o.result)
	}
	return p
}

// closed closes a round that must be closed.
func (w *world) closed(tb testing.TB, round int, term int64) *auction.Auction {
	tb.Helper()
	o := w.do(tb, auction.CloseRound{Round: round, Term: term})
	if o.err != nil {
		tb.Fatalf("close of round %d: %v", round, o.err)
	}
	a := o.auction(tb)
	if a == nil {
		tb.Fatalf("round %d was not closed", round)
	}
	return a
}

func (w *world) wantMoney(tb testing.TB, account string, available, held int64) {
	tb.Helper()
	if a := w.accounts[account]; a.Available != available || a.Held != held {
		tb.Errorf("%s has %d available and %d held, want %d and %d", account, a.Available, a.Held, available, held)
	}
}

func wantError(tb testing.TB, o outcome, want error) {
	tb.Helper()
	if !errors.Is(o.err, want) {
		tb.Fatalf("answered %v, %v; want the error %v", o.result, o.err, want)
	}
}

// refusedWith returns the refusal, which must be of the given type.
func refusedWith[E error](tb testing.TB, o outcome) E {
	tb.Helper()
	e, ok := errors.AsType[E](o.err)
	if !ok {
		tb.Fatalf("answered %v, %v; want a %T", o.result, o.err, e)
	}
	return e
}

// types lists the kinds of the last transaction's events.
func (w *world) types() []auction.EventType {
	kinds := make([]auction.EventType, 0, len(w.state.Events))
	for _, e := range w.state.Events {
		kinds = append(kinds, e.Type)
	}
	return kinds
}
