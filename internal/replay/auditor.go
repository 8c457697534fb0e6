package replay

import (
	"cmp"
	"maps"
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

// before says whether the bid ranks before another: by amount, then by time, then by order.
func (s standing) before(other standing) bool {
	return cmp.Or(cmp.Compare(other.amount, s.amount), s.at.Compare(other.at), cmp.Compare(s.seq, other.seq)) < 0
}

// auditor plays one auction again, event by event.
type auditor struct {
	rules    Rules
	topic    string
	now      time.Time // of the last event
	out      Outcome
	standing map[string]standing
	amounts  map[int64]string // of the standing bids, by amount, where amounts are unique
	winning  map[string]bool  // who would win if the round ended now
	rest     []Event          // what the transaction under way must still tell, in order
}

// Replay plays a whole log and returns what it comes to. The accounts had funds available and nothing held when the auction
// began; those that are not among them had nothing. The error is the first *[Difference] between the log and what the auditor
// recomputes. The log may be that of an auction that is still under way, but may not end in the middle of a transaction.
// Countdowns are no events of the log and must be left out.
func Replay(rules Rules, funds map[string]int64, events []Event) (*Outcome, error) {
	a := &auditor{rules: rules, standing: map[string]standing{}, amounts: map[int64]string{}}
	a.out = Outcome{Status: "pending", Accounts: map[string]Balance{}, seller: rules.Seller, minBid: max(rules.MinBid, 1)}
	for account, amount := range funds {
		a.out.Accounts[account] = Balance{Available: amount}
	}
	for i, rule := range rules.Rounds {
		a.out.Rounds = append(a.out.Rounds, Round{Number: i + 1, Places: rule.Winners, Status: "pending"})
	}
	for _, e := range events {
		d := &differ{seq: e.Seq}
		if a.apply(d, e); d.first != nil {
			return nil, d.first
		}
	}
	if len(a.rest) > 0 {
		d := &differ{seq: a.out.Seq + 1}
		same(d, "type of the event after the last", "none", string(a.rest[0].Type))
		return nil, d.err()
	}
	if a.out.Status == "active" {
		a.out.Board = a.board(a.out.Rounds[a.out.CurrentRound-1].Places)
	}
	return &a.out, nil
}

func (a *auditor) apply(d *differ, e Event) {
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
		deep(d, "", e, next)
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

func (a *auditor) start(d *differ, e Event) {
	same(d, "status before the start", a.out.Status, "pending")
	if d.first != nil || len(a.rules.Rounds) == 0 {
		return
	}
	a.out.Status = "active"
	a.open(e.At)
	deep(d, "rounds", e.Rounds, a.out.Views())
}

// open opens the next round, which the transaction must tell.
func (a *auditor) open(now time.Time) {
	rule := a.rules.Rounds[a.out.CurrentRound]
	ends := now.Add(rule.Duration)
	r := &a.out.Rounds[a.out.CurrentRound]
	r.Status, r.StartedAt, r.EndsAt = "active", now, ends
	a.out.CurrentRound++
	a.winning = map[string]bool{}
	for _, place := range a.board(rule.Winners) {
		if place.Winning {
			a.winning[place.Account] = true
		}
	}
	a.rest = append(a.rest, Event{
		Type: RoundStarted, At: now, Opening: &Opening{Round: a.out.CurrentRound, Winners: rule.Winners, EndsAt: ends},
	})
}

// current is the open round, or nil with a difference.
func (a *auditor) current(d *differ, round int) *Round {
	same(d, "status of the auction", "active", a.out.Status)
	same(d, "round", round, a.out.CurrentRound)
	if d.first != nil {
		return nil
	}
	return &a.out.Rounds[a.out.CurrentRound-1]
}

func (a *auditor) cancel(d *differ, e Event) {
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

func (a *auditor) bid(d *differ, e Event) {
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
	money := a.out.Accounts[b.Account]
	if more := b.Amount - last.amount; money.Available < more {
		same(d, "further amount held, which is covered", more, money.Available)
	} else {
		a.out.Accounts[b.Account] = Balance{money.Available - more, money.Held + more}
	}
	if raised {
		delete(a.amounts, last.amount)
	}
	if a.rules.UniqueAmounts {
		a.amounts[b.Amount] = b.Account
	}
	now := standing{b.Account, b.Amount, e.At, e.Seq}
	a.standing[b.Account] = now
	rank := 1
	for _, other := range a.standing {
		if other.before(now) {
			rank++
		}
	}
	same(d, "rank", b.Rank, rank)
	if out := a.outbid(now, r.Places, rank); b.Outbid == nil {
		same(d, "presence of outbid", false, !a.rules.OutbidOptional)
	} else {
		deep(d, "outbid", *b.Outbid, out)
		floor := int64(0)
		if len(out) > 0 {
			floor = a.lowestWinning() + 1
		}
		deep(d, "min_winning_bid", cmp.Or(b.MinWinning, new(int64)), &floor)
	}
	a.extend(r, e.At)
	a.out.Bids = append(a.out.Bids, PlacedBid{Bid: *b, Seq: e.Seq, At: e.At, RoundEndsAt: r.EndsAt})
}

// outbid takes a bid that was placed into account, and returns whose bid lost a winning place by it. Those that did not win
// before cannot win now, so only the winners and the bidder are compared.
func (a *auditor) outbid(now standing, places, rank int) []Outbid {
	if rank <= places {
		a.winning[now.account] = true
	}
	if len(a.winning) <= places {
		return []Outbid{}
	}
	last := now
	for account := range a.winning {
		if s := a.standing[account]; last.before(s) {
			last = s
		}
	}
	delete(a.winning, last.account)
	return []Outbid{{Account: last.account, Amount: last.amount, Rank: places + 1}}
}

func (a *auditor) lowestWinning() int64 {
	lowest := int64(MaxAmount)
	for account := range a.winning {
		lowest = min(lowest, a.standing[account].amount)
	}
	return lowest
}

// extend moves the round's end if a bid at now does that, which the transaction must tell.
func (a *auditor) extend(r *Round, now time.Time) {
	if a.rules.Window <= 0 || a.rules.Extension <= 0 || r.Extensions >= a.rules.MaxExtensions || r.EndsAt.Sub(now) > a.rules.Window {
		return
	}
	r.Extensions++
	r.EndsAt = r.EndsAt.Add(a.rules.Extension)
	a.rest = append(a.rest, Event{
		Type: RoundExtended, At: now, Extension: &Extension{Round: r.Number, EndsAt: r.EndsAt, Extensions: r.Extensions},
	})
}

func (a *auditor) close(d *differ, e Event) {
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
		seller := a.out.Accounts[a.rules.Seller]
		seller.Available += w.Amount
		a.out.Accounts[a.rules.Seller] = seller
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
func (a *auditor) board(winning int) []Place {
	all := slices.SortedFunc(maps.Values(a.standing), func(x, y standing) int {
		if x.before(y) {
			return -1
		}
		return 1
	})
	places := make([]Place, len(all))
	for i, s := range all {
		places[i] = Place{Rank: i + 1, Account: s.account, Amount: s.amount, Winning: i < winning}
	}
	return places
}

// release ends the hold of an account's standing bid and gives back so much of it; the rest is gone.
func (a *auditor) release(account string, back int64) {
	s := a.standing[account]
	money := a.out.Accounts[account]
	a.out.Accounts[account] = Balance{money.Available + back, money.Held - s.amount}
	delete(a.standing, account)
	delete(a.amounts, s.amount)
}

func (a *auditor) releaseAll() {
	for account, s := range a.standing {
		a.release(account, s.amount)
	}
}
