package auction

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// maxEventRoom bounds how many events room is made for before any is there: about two for each bid of a batch.
const maxEventRoom = 1024

// State is what transactions on one auction work on, one after the other. A process may keep it from one transaction to
// the next, as long as each commit checks that the auction is still the one it was decided on. It is not safe for
// concurrent use.
//
// A transaction is [State.Begin], [State.LoadHolds], any number of [Decide], writing what has changed, and its commit. If
// it is not committed, [State.Undo] takes everything back.
type State struct {
	Auction  *Auction
	Standing *Standing
	Book     *ledger.Book
	// Uncertain is by how much the present time may be earlier than the book's time, which is the latest that is possible.
	// A decision that depends on it refuses. [State.Begin] sets it to 0; a caller whose time is not exact sets it after that.
	Uncertain time.Duration

	// What the transaction has to write beside the auction, its rounds, the standing bids and the book's changes. Each
	// transaction has slices of its own, which may be kept.
	Placed  []Placed // accepted bids, in order
	Winners []Winner // in order of rank
	Events  []Event  // all of them, bid.placed too, in order

	topic   string    // the owner of the auction's holds
	latest  time.Time // of the last change
	changed bool

	// What [State.Undo] goes back to: the auction without its rounds, and the rounds that were changed.
	beforeAuction Auction
	beforeLatest  time.Time
	beforeRounds  []Round
}

// NewState takes an auction and its standing bids, in any order, and becomes their owner.
func NewState(a *Auction, bids []Bid) *State {
	s := &State{Auction: a, Standing: newStanding(bids), topic: a.Topic(), latest: a.latest()}
	for i := range bids {
		s.latest = later(s.latest, bids[i].At)
	}
	s.remember()
	return s
}

// Begin starts a transaction that works with book, in which the accounts are loaded already. The transaction before it is
// taken to be committed: from now on [State.Undo] goes back to here.
func (s *State) Begin(book *ledger.Book) {
	room := min(len(s.Events)+len(s.Events)/4, maxEventRoom)
	s.Placed = make([]Placed, 0, min(len(s.Placed)+len(s.Placed)/4, maxEventRoom))
	s.Events = make([]Event, 0, room)
	s.Winners = nil
	s.Book, s.Uncertain = book, 0
	s.Standing.begin()
	s.remember()
}

// Keep says that the transaction was committed: [State.Undo], until the next [State.Begin], changes nothing. The outcome
// lists stay.
func (s *State) Keep() {
	s.Book = nil
	s.Standing.begin()
	s.remember()
}

// Undo takes back everything since [State.Begin], where that was not kept, and forgets the outcome lists and the book.
// What it goes back to does not depend on how often it is called.
func (s *State) Undo() {
	*s.Auction, s.latest = s.beforeAuction, s.beforeLatest
	for _, r := range s.beforeRounds {
		s.Auction.Rounds[r.Number-1] = r
	}
	s.Placed, s.Winners, s.Events, s.Book = nil, nil, nil, nil
	s.Standing.undo()
	s.remember()
}

// CatchUp brings the state to what other processes have committed since it was last true: a is the auction as it is now,
// and bids are accepted ones, in order, among them all that were placed since, none of which has been settled. Bids that
// the state knows of already are left out. It must not be called within a transaction.
func (s *State) CatchUp(a *Auction, bids []Bid) {
	for _, b := range bids {
		if b.Seq > s.Auction.Seq {
			s.Standing.put(b)
			s.latest = later(s.latest, b.At)
		}
	}
	s.Standing.begin()
	s.Auction = a
	s.Placed, s.Winners, s.Events, s.Book = nil, nil, nil, nil
	s.latest = later(s.latest, a.latest())
	s.remember()
}

// LoadHolds puts the holds of these accounts' standing bids into the book, as far as they are open: an auction that has
// ended holds nothing. It is called before the first decision.
func (s *State) LoadHolds(accounts []string) {
	if s.ended() {
		return
	}
	for _, account := range accounts {
		n := s.Standing.find(account)
		if n == nil {
			continue
		}
		s.Book.LoadHold(ledger.Hold{
			ID: n.bid.Hold, Account: n.bid.Account, Amount: n.bid.Amount, Status: ledger.HoldOpen, Owner: s.topic,
		})
	}
}

// Changed reports whether anything since [State.Begin] has to be written. The auction's version then is one larger.
func (s *State) Changed() bool { return s.changed }

// ChangedRounds returns the rounds that have changed since [State.Begin], in order.
func (s *State) ChangedRounds() []Round {
	if len(s.beforeRounds) == 0 {
		return nil
	}
	rounds := make([]Round, 0, len(s.beforeRounds))
	for _, r := range s.beforeRounds {
		rounds = append(rounds, s.Auction.Rounds[r.Number-1])
	}
	slices.SortFunc(rounds, func(a, b Round) int { return cmp.Compare(a.Number, b.Number) })
	return rounds
}

// StandingChanges returns what has become of the standing bids since [State.Begin], each list in order of account, byte by
// byte: those of accounts that had none, those that took the place of an earlier one, and the accounts that have none
// any more. A bid that was replaced may differ from the earlier one in everything but its account, and be lower, where
// the account won and bid anew within the transaction. Where amounts are unique, they are so after all removals, after
// all replacements, and after all additions, in this order.
//
// When the auction ends, its losers' bids are not listed as removed: they stay, but are active no more.
func (s *State) StandingChanges() (added []Bid, raised []Raise, removed []string) {
	return s.Standing.changes()
}

// Horizon is the instant from which on a bid would be decided otherwise than now: it would extend the open round, or be too
// late for it. Without an open round it is the zero time.
func (s *State) Horizon() time.Time {
	r := s.Auction.Open()
	switch {
	case r == nil:
		return time.Time{}
	case s.Auction.extends(r):
		return r.EndsAt.Add(-s.Auction.AntiSnipe.Window)
	}
	return *r.EndsAt
}

// ended reports whether the auction is over, so that no bid holds money.
func (s *State) ended() bool {
	return s.Auction.Status == StatusCompleted || s.Auction.Status == StatusCancelled
}

// now is the time of the transaction. Clocks of several machines take part in it, and one may be behind: within an
// auction, time does not run backwards.
func (s *State) now() time.Time {
	now := s.Book.Now()
	if now.Before(s.latest) {
		return s.latest
	}
	return now
}

// change marks the auction as changed. One transaction makes one new version of it, however many its commands.
func (s *State) change(now time.Time) {
	s.latest = now
	if !s.changed {
		s.changed = true
		s.Auction.Version++
	}
}

// round returns a round to be changed.
func (s *State) round(number int) *Round {
	r := &s.Auction.Rounds[number-1]
	if !slices.ContainsFunc(s.beforeRounds, func(b Round) bool { return b.Number == number }) {
		s.beforeRounds = append(s.beforeRounds, *r)
	}
	return r
}

// emit adds the next event.
func (s *State) emit(kind EventType, at time.Time, data any) {
	s.Auction.Seq++
	s.Events = append(s.Events, Event{Seq: s.Auction.Seq, Type: kind, At: at, Data: data})
}

// remember makes what is now what [State.Undo] goes back to.
func (s *State) remember() {
	s.changed = false
	s.beforeAuction, s.beforeLatest = *s.Auction, s.latest
	s.beforeRounds = s.beforeRounds[:0]
}

// latest is the latest time recorded in the auction and its rounds. The later of it and the times of the standing bids is
// the time of the last change, so a cached state decides like one that was read again.
func (a *Auction) latest() time.Time {
	t := later(a.CreatedAt, later(timeOf(a.StartedAt), timeOf(a.EndedAt)))
	for i := range a.Rounds {
		t = later(t, later(timeOf(a.Rounds[i].StartedAt), timeOf(a.Rounds[i].EndedAt)))
	}
	return t
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
