package replay

import (
	"cmp"
	"slices"
	"time"
)

// Rules are what the auction was created with. A zero window, extension or maximum: no anti-sniping; a zero cooldown:
// none.
type Rules struct {
	Seller               string
	Rounds               []RoundRule
	MinBid, MinIncrement int64
	Window, Extension    time.Duration
	MaxExtensions        int
	Cooldown             time.Duration
	UniqueAmounts        bool
	// OutbidOptional lets bids pass that do not say whose place was lost: servers did not record it before migration 26.
	OutbidOptional bool
	// FundsUnknown turns off whether bids are covered: who reads the public log does not know what accounts have. The outcome then
	// has no accounts.
	FundsUnknown bool
}

// RoundRule is a round with so many winners, and how long it is without extensions.
type RoundRule struct {
	Winners  int
	Duration time.Duration
}

// Balance is what an account has, in minor units.
type Balance struct{ Available, Held int64 }

// standing is the bid of an account that counts.
type standing struct {
	account string
	amount  int64
	at      time.Time
	seq     int64
}

// compare is negative if the bid ranks before another: by amount, then by time, then by order.
func (s *standing) compare(other *standing) int {
	return cmp.Or(cmp.Compare(other.amount, s.amount), s.at.Compare(other.at), cmp.Compare(s.seq, other.seq))
}

// Stream plays one auction again, event by event. What it keeps grows with the standing bids, and not with the events. It is not
// safe for concurrent use.
type Stream struct {
	rules    Rules
	topic    string
	now      time.Time // of the last event
	out      Outcome   // without Bids; Board only from the last close or cancellation on
	standing map[string]*standing
	order    order
	amounts  map[int64]string // of the standing bids, by amount, where amounts are unique
	rest     []Event          // what the transaction under way must still tell, in order
	failed   error
}

// Begin begins before the first event. The accounts have funds available and nothing held; those that are not among them have
// nothing. Where the rules say that funds are unknown, they are not looked at.
func Begin(rules Rules, funds map[string]int64) *Stream {
	a := &Stream{rules: rules, standing: map[string]*standing{}, amounts: map[int64]string{}}
	a.out = Outcome{Status: "pending", Accounts: map[string]Balance{}, seller: rules.Seller, minBid: max(rules.MinBid, 1)}
	for account, amount := range funds {
		a.out.Accounts[account] = Balance{Available: amount}
	}
	for i, rule := range rules.Rounds {
		a.out.Rounds = append(a.out.Rounds, Round{Number: i + 1, Places: rule.Winners, Status: "pending"})
	}
	return a
}

// Apply plays the next event. The error is the first *[Difference] between the events and what is recomputed; after it, every
// call returns the same one. Countdowns are no events of the log and must be left out.
func (a *Stream) Apply(e Event) error {
	if a.failed == nil {
		d := &differ{seq: e.Seq}
		a.apply(d, e)
		a.failed = d.err()
	}
	return a.failed
}

// Missing is the type of the event that must come next, because a transaction has more to tell; it is empty where the events end
// with a transaction.
func (a *Stream) Missing() Type {
	if len(a.rest) == 0 {
		return ""
	}
	return a.rest[0].Type
}

// Status is that of the auction after the last event: pending, active, completed or cancelled.
func (a *Stream) Status() string { return a.out.Status }

// Rounds are the rounds after the last event. They must not be changed.
func (a *Stream) Rounds() []Round { return a.out.Rounds }

// Finish returns what the events come to, without Bids. The auction may still be under way. The error is that of [Stream.Apply],
// or a *[Difference] where the events end in the middle of a transaction. No event can follow.
func (a *Stream) Finish() (*Outcome, error) {
	if a.failed != nil {
		return nil, a.failed
	}
	if next := a.Missing(); next != "" {
		d := &differ{seq: a.out.Seq + 1}
		same(d, "type of the event after the last", "none", string(next))
		a.failed = d.err()
		return nil, a.failed
	}
	if a.out.Status == "active" {
		a.out.Board = a.board(a.out.Rounds[a.out.CurrentRound-1].Places)
	}
	return &a.out, nil
}

// Replay plays a whole log and returns what it comes to: [Begin], [Stream.Apply] for each event, and [Stream.Finish]. The log may
// be that of an auction that is still under way, but may not end in the middle of a transaction.
func Replay(rules Rules, funds map[string]int64, events []Event) (*Outcome, error) {
	a := Begin(rules, funds)
	var bids []PlacedBid
	for _, e := range events {
		if err := a.Apply(e); err != nil {
			return nil, err
		}
		if e.Type == BidPlaced {
			bids = append(bids, PlacedBid{Bid: *e.Bid, Seq: e.Seq, At: e.At, RoundEndsAt: a.out.Rounds[e.Bid.Round-1].EndsAt})
		}
	}
	out, err := a.Finish()
	if err == nil {
		out.Bids = bids
	}
	return out, err
}

func (a *Stream) apply(d *differ, e Event) {
	if a.topic == "" {
		a.topic = e.Topic
	}
	same(d, "topic", e.Topic, a.topic)
	same(d, "sequence number", e.Seq, a.out.Seq+1)
	if e.At.Before(a.now) {
		wrongTime(d, "time, which never runs backwards", e.At, a.now)
	}
	if d.first != nil {
		return
	}
	a.out.Seq, a.now = e.Seq, e.At
	if len(a.rest) > 0 {
		next := a.rest[0]
		next.Topic, next.Seq = e.Topic, e.Seq
		// A close of many bidders tells of each: those that agree are compared without reflection.
		if e.Type != next.Type || !e.At.Equal(next.At) || e.Carry == nil || next.Carry == nil || *e.Carry != *next.Carry {
			deep(d, "", e, next)
		}
		a.rest = a.rest[1:]
		return
	}
	switch e.Type {
	case AuctionStarted:
		a.start(d, e)
	case AuctionCancelled:
		a.cancel(d, e)
	case BidPlaced:
		a.bid(d, e)
	case RoundCompleted:
		a.close(d, e)
	case AuctionCompleted, RoundExtended, RoundStarted, BidCarriedOver, CountdownTick:
		same(d, "type", string(e.Type), "none that needs a cause that is not there")
	default:
		same(d, "type", string(e.Type), "a known one")
	}
}

func (a *Stream) start(d *differ, e Event) {
	same(d, "status before the start", a.out.Status, "pending")
	if d.first != nil || len(a.rules.Rounds) == 0 {
		return
	}
	a.out.Status = "active"
	a.open(e.At)
	deep(d, "rounds", e.Rounds, a.out.Views())
}

// open opens the next round, which the transaction must tell.
func (a *Stream) open(now time.Time) {
	rule := a.rules.Rounds[a.out.CurrentRound]
	ends := now.Add(rule.Duration)
	r := &a.out.Rounds[a.out.CurrentRound]
	r.Status, r.StartedAt, r.EndsAt = "active", now, ends
	a.out.CurrentRound++
	a.rest = append(a.rest, Event{
		Type: RoundStarted, At: now, Opening: &Opening{Round: a.out.CurrentRound, Winners: rule.Winners, EndsAt: ends},
	})
}

// current is the open round, or nil with a difference.
func (a *Stream) current(d *differ, round int) *Round {
	same(d, "status of the auction", "active", a.out.Status)
	same(d, "round", round, a.out.CurrentRound)
	if d.first != nil {
		return nil
	}
	return &a.out.Rounds[a.out.CurrentRound-1]
}

func (a *Stream) cancel(d *differ, e Event) {
	if a.out.Status != "active" {
		same(d, "status before the cancellation", a.out.Status, "pending")
	}
	if d.first != nil {
		return
	}
	if a.out.Status == "active" {
		a.out.Board = a.board(0)
		r := &a.out.Rounds[a.out.CurrentRound-1]
		r.Status, r.CompletedAt = "completed", e.At
	}
	a.out.Status = "cancelled"
	a.releaseAll()
	deep(d, "rounds", e.Rounds, a.out.Views())
}

func (a *Stream) bid(d *differ, e Event) {
	b := e.Bid
	r := a.current(d, b.Round)
	if r == nil {
		return
	}
	if !e.At.Before(r.EndsAt) {
		wrongTime(d, "time of a bid, which is before its round's end", e.At, r.EndsAt)
	}
	if b.Account == a.rules.Seller {
		same(d, "bidder", b.Account, "anybody but the seller")
	}
	last, raised := a.standing[b.Account]
	if !raised {
		last = &standing{account: b.Account}
	}
	same(d, "previous amount", b.PreviousAmount, last.amount)
	least := max(a.rules.MinBid, 1)
	if raised {
		least = max(least, last.amount+max(a.rules.MinIncrement, 1))
		if e.At.Before(last.at.Add(a.rules.Cooldown)) {
			wrongTime(d, "time of a raise, which is after the cooldown", e.At, last.at.Add(a.rules.Cooldown))
		}
	}
	if b.Amount < least {
		same(d, "amount, which is not under the least", b.Amount, least)
	}
	if owner, taken := a.amounts[b.Amount]; taken {
		same(d, "owner of the amount, which is unique", b.Account, owner)
	}
	a.hold(d, b.Account, b.Amount-last.amount)
	if d.first != nil {
		return
	}
	before := a.order.count + 1 // Behind all others, without a bid.
	if raised {
		before = a.order.remove(last)
		delete(a.amounts, last.amount)
	}
	if a.rules.UniqueAmounts {
		a.amounts[b.Amount] = b.Account
	}
	now := &standing{b.Account, b.Amount, e.At, e.Seq}
	a.standing[b.Account] = now
	rank := a.order.insert(now)
	same(d, "rank", b.Rank, rank)
	if out := a.outbid(before, rank, r.Places); b.Outbid == nil {
		same(d, "presence of outbid", false, !a.rules.OutbidOptional)
	} else {
		if !slices.Equal(*b.Outbid, out) {
			deep(d, "outbid", *b.Outbid, out)
		}
		floor := int64(0)
		if len(out) > 0 {
			floor = a.order.at(r.Places).amount + 1
		}
		deep(d, "min_winning_bid", cmp.Or(b.MinWinning, new(int64)), &floor)
	}
	a.extend(r, e.At)
}

// hold sets money aside for a bid, where it is known who has what.
func (a *Stream) hold(d *differ, account string, more int64) {
	if a.rules.FundsUnknown {
		return
	}
	money := a.out.Accounts[account]
	if money.Available < more {
		same(d, "further amount held, which is covered", more, money.Available)
		return
	}
	a.out.Accounts[account] = Balance{money.Available - more, money.Held + more}
}

// outbid returns whose bid lost a winning place by one that was placed, and had another rank before: the bid that now stands
// right behind the winners, unless the bidder was one of them.
func (a *Stream) outbid(before, rank, places int) []Outbid {
	if before <= places || rank > places || a.order.count <= places {
		return []Outbid{}
	}
	last := a.order.at(places + 1)
	return []Outbid{{Account: last.account, Amount: last.amount, Rank: places + 1}}
}

// extend moves the round's end if a bid at now does that, which the transaction must tell.
func (a *Stream) extend(r *Round, now time.Time) {
	if a.rules.Window <= 0 || a.rules.Extension <= 0 || r.Extensions >= a.rules.MaxExtensions || r.EndsAt.Sub(now) > a.rules.Window {
		return
	}
	r.Extensions++
	r.EndsAt = r.EndsAt.Add(a.rules.Extension)
	a.rest = append(a.rest, Event{
		Type: RoundExtended, At: now, Extension: &Extension{Round: r.Number, EndsAt: r.EndsAt, Extensions: r.Extensions},
	})
}

func (a *Stream) close(d *differ, e Event) {
	r := a.current(d, e.Close.Round)
	if r == nil {
		return
	}
	if e.At.Before(r.EndsAt) {
		wrongTime(d, "time of a close, which is not before the round's end", e.At, r.EndsAt)
	}
	a.out.Board = a.board(r.Places)
	for _, place := range a.out.Board {
		if !place.Winning {
			break
		}
		r.Winners = append(r.Winners, Payment{place.Account, place.Amount})
	}
	deep(d, "winners", e.Close.Winners, r.Winners)
	for _, w := range r.Winners {
		a.release(w.Account, 0)
		if seller := a.out.Accounts[a.rules.Seller]; !a.rules.FundsUnknown {
			seller.Available += w.Amount
			a.out.Accounts[a.rules.Seller] = seller
		}
		a.out.Income += w.Amount
	}
	r.Status, r.CompletedAt = "completed", e.At
	if r.Number == len(a.rules.Rounds) {
		a.out.Status = "completed"
		a.releaseAll()
		a.rest = append(a.rest, Event{Type: AuctionCompleted, At: e.At, Rounds: a.out.Views()})
		return
	}
	for _, place := range a.out.Board[len(r.Winners):] {
		a.rest = append(a.rest, Event{Type: BidCarriedOver, At: e.At, Carry: &Carry{
			Account: place.Account, Amount: place.Amount, FromRound: r.Number, ToRound: r.Number + 1,
		}})
	}
	a.open(e.At)
}

// board is the ranking of the standing bids, of which the first so many win.
func (a *Stream) board(winning int) []Place {
	places := make([]Place, 0, a.order.count)
	for rank, s := range a.order.all() {
		places = append(places, Place{Rank: rank, Account: s.account, Amount: s.amount, Winning: rank <= winning})
	}
	return places
}

// release ends the hold of an account's standing bid and gives back so much of it; the rest is gone.
func (a *Stream) release(account string, back int64) {
	s := a.standing[account]
	if !a.rules.FundsUnknown {
		money := a.out.Accounts[account]
		a.out.Accounts[account] = Balance{money.Available + back, money.Held - s.amount}
	}
	a.order.remove(s)
	delete(a.standing, account)
	delete(a.amounts, s.amount)
}

func (a *Stream) releaseAll() {
	for account, s := range a.standing {
		a.release(account, s.amount)
	}
}
