package auction

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// Op is an operation on auctions: one of the types below.
type Op interface {
	// action names the operation in the audit log; it is empty for one that is no administrative change.
	action() string
}

// Start opens the first round. Result: *[Auction].
type Start struct{}

// Cancel ends an auction that has not ended, and gives all held money back. Winners of earlier rounds remain. Result:
// *[Auction].
type Cancel struct{}

// PlaceBid bids for an account, or raises its standing bid. Amount is from 1 to [ledger.MaxAmount]. Result: [Placed].
type PlaceBid struct {
	Account string
	Amount  int64
	// User says that a user asks, for whom drafts do not exist.
	User bool
}

// CloseRound settles a round whose time is over, and opens the next one or ends the auction. The leader sends it, in its
// term. Result: *[Auction], nil when there was nothing to close: the round is not the open one, or not over.
type CloseRound struct {
	Round int
	Term  int64
}

func (Create) action() string     { return "auction.create" }
func (Start) action() string      { return "auction.start" }
func (Cancel) action() string     { return "auction.cancel" }
func (PlaceBid) action() string   { return "" }
func (CloseRound) action() string { return "" }

// Decide applies one operation to an auction. An error is a refusal and has changed nothing. Results are the caller's to
// keep.
//
// Refusals of a bid, in the order in which they are looked for: [ledger.AccountNotFoundError], [ErrNotActive],
// [ErrOwnAuction], [CooldownError], [BidTooLowError], [ErrAmountTaken], [ledger.ErrCurrencyMismatch],
// [ledger.InsufficientFundsError]. Of a start or a cancellation: [ErrBadTransition]. Of a close: [ErrSuperseded], and
// [ledger.AccountNotFoundError] or [ledger.ErrBalanceOverflow] when the seller cannot be paid; the round then stays open,
// and takes no bids, until it can.
func Decide(s *State, op Op) (any, error) {
	switch op := op.(type) {
	case PlaceBid:
		return decideBid(s, op)
	case CloseRound:
		return decideClose(s, op)
	case Start:
		return decideStart(s)
	case Cancel:
		return decideCancel(s)
	}
	panic(fmt.Sprintf("auction: %T is not an operation on an auction", op))
}

func decideBid(s *State, op PlaceBid) (any, error) {
	if op.User && s.Auction.Draft() {
		return nil, &NotFoundError{ID: s.Auction.ID}
	}
	account, err := s.Book.Account(op.Account)
	if err != nil {
		return nil, err
	}
	a, now, round := s.Auction, s.now(), s.Auction.Open()
	if round == nil || !now.Before(*round.EndsAt) {
		return nil, ErrNotActive
	}
	if op.Account == a.Seller {
		return nil, ErrOwnAuction
	}
	bid := Bid{Account: op.Account, Amount: op.Amount, Round: round.Number, At: now}
	least, previous := a.MinBid, int64(0)
	if n := s.Standing.find(op.Account); n != nil {
		// A bid from further in the future was made while the clock was ahead: its account would wait for as long as it was.
		wait, ahead := a.Cooldown-now.Sub(n.bid.At)+s.Uncertain, n.bid.At.Sub(s.Book.Now())
		if a.Cooldown > 0 && wait > 0 && ahead <= a.Cooldown+MaxAhead {
			return nil, &CooldownError{RetryAfter: min(wait, a.Cooldown)}
		}
		previous, bid.Hold = n.bid.Amount, n.bid.Hold
		least = previous + a.MinIncrement
	}
	switch {
	case op.Amount < least:
		return nil, &BidTooLowError{Least: least}
	case a.UniqueAmounts && s.Standing.Taken(op.Amount):
		return nil, ErrAmountTaken
	case account.Currency != a.Currency:
		return nil, ledger.ErrCurrencyMismatch
	}
	if bid.Hold, err = s.setAside(op, bid.Hold); err != nil {
		return nil, err
	}

	// Nothing refuses from here on.
	s.change(now)
	a.TotalBids++
	bid.Seq = a.Seq + 1 // of the event that follows
	rank, out, floor := s.Standing.putAmong(bid, round.Winners)
	placed := Placed{
		Auction: a.ID, Account: bid.Account, Amount: bid.Amount, PreviousAmount: previous, Round: bid.Round,
		Rank: rank, Seq: bid.Seq, At: now, Hold: bid.Hold,
	}
	data := BidPlacedData{
		Account: bid.Account, Amount: bid.Amount, PreviousAmount: previous, Round: bid.Round, Rank: rank, Outbid: []Outbid{},
	}
	if out != nil {
		placed.Outbid, placed.Floor = out.Seq, floor
		data.Outbid, data.Floor = []Outbid{{Account: out.Account, Amount: out.Amount, Rank: round.Winners + 1}}, floor
	}
	s.emit(EventBidPlaced, now, data)
	s.extend(now)
	placed.RoundEndsAt = *round.EndsAt
	s.Placed = append(s.Placed, placed)
	return placed, nil
}

// setAside holds the money of a bid: under the hold of the account's standing bid, if it has one.
func (s *State) setAside(op PlaceBid, standing uuid.UUID) (uuid.UUID, error) {
	if standing == uuid.Nil {
		h, err := s.Book.Reserve(op.Account, op.Amount, s.topic)
		return h.ID, err
	}
	h, err := s.Book.RaiseHold(standing, op.Amount)
	if err != nil {
		return uuid.Nil, fundsOnly(err)
	}
	return h.ID, nil
}

// extend moves the end of the open round, if a bid at now has come close to it.
func (s *State) extend(now time.Time) {
	a, r := s.Auction, s.Auction.Open()
	if !a.extends(r) || r.EndsAt.Sub(now) > a.AntiSnipe.Window {
		return
	}
	r = s.round(r.Number)
	end := r.EndsAt.Add(a.AntiSnipe.Extension)
	r.EndsAt = &end
	r.Extensions++
	s.emit(EventRoundExtended, now, RoundExtendedData{Round: r.Number, EndsAt: Instant(end), Extensions: r.Extensions})
}

// extends reports whether a bid close to the end of a round would extend it.
func (a *Auction) extends(r *Round) bool {
	return a.AntiSnipe.Window > 0 && a.AntiSnipe.Extension > 0 && r.Extensions < a.AntiSnipe.MaxExtensions
}

func decideStart(s *State) (any, error) {
	a := s.Auction
	if a.Status != StatusPending {
		return nil, ErrBadTransition
	}
	now := s.now()
	s.change(now)
	a.Status, a.StartedAt = StatusActive, &now
	// The round is opened first, so that the views show it, and announced after.
	data := s.open(1, now)
	s.emit(EventAuctionStarted, now, RoundsData{Rounds: a.Views()})
	s.emit(EventRoundStarted, now, data)
	return a.clone(), nil
}

func decideCancel(s *State) (any, error) {
	a := s.Auction
	if a.Status != StatusPending && a.Status != StatusActive {
		return nil, ErrBadTransition
	}
	if err := s.loaded(Cancel{}); err != nil {
		return nil, err
	}
	now := s.now()
	s.change(now)
	for _, bid := range s.Standing.All() {
		s.release(bid)
	}
	if r := a.Open(); r != nil {
		r = s.round(r.Number)
		r.Status, r.EndedAt = RoundCompleted, &now
	}
	a.Status, a.EndedAt = StatusCancelled, &now
	s.emit(EventAuctionCancelled, now, RoundsData{Rounds: a.Views()})
	return a.clone(), nil
}

// open starts a round and returns what its event says.
func (s *State) open(number int, now time.Time) RoundStartedData {
	r := s.round(number)
	if r.Status != RoundPending {
		panic("auction: a round is opened twice")
	}
	end := now.Add(r.Duration)
	r.Status, r.StartedAt, r.EndsAt = RoundActive, &now, &end
	s.Auction.CurrentRound = number
	return RoundStartedData{Round: number, EndsAt: Instant(end), Winners: r.Winners}
}

// release gives a bid's money back.
func (s *State) release(bid Bid) {
	if _, err := s.Book.Release(bid.Hold); err != nil {
		panic(fmt.Sprintf("auction: a hold cannot be released: %v", err))
	}
}

// Views returns the rounds as the contract shows them.
func (a *Auction) Views() []RoundView {
	views := make([]RoundView, len(a.Rounds))
	for i := range a.Rounds {
		r := &a.Rounds[i]
		views[i] = RoundView{
			Round: r.Number, Winners: r.Winners, Status: string(r.Status), Duration: r.Duration.String(),
			StartedAt: instant(r.StartedAt), EndsAt: instant(r.EndsAt), Extensions: r.Extensions,
		}
	}
	return views
}

// clone returns a copy that stays as it is. Times are replaced, never written to, so it may share them with the auction.
func (a *Auction) clone() *Auction {
	c := *a
	c.Rounds = slices.Clone(a.Rounds)
	return &c
}

// Create makes an auction, pending. Result: *[Auction], without a number. The edge has validated its fields: title,
// currency and seller are well-formed, there are from 1 to [MaxRounds] rounds, and numbers and durations are within the
// limits, in whole microseconds.
type Create struct {
	Title         string
	Currency      string
	Seller        string
	Rounds        []NewRound
	MinBid        int64
	MinIncrement  int64
	AntiSnipe     AntiSnipe
	Cooldown      time.Duration
	UniqueAmounts bool
}

// NewRound is a round to be made.
type NewRound struct {
	Winners  int // places
	Duration time.Duration
}

// Creation is what the transaction that makes auctions works on: the sellers' accounts, and the auctions made.
type Creation struct {
	Book     *ledger.Book
	Auctions []Auction // newly made, to be written
}

// DecideCreate makes an auction. It returns [ledger.AccountNotFoundError] or [ledger.ErrCurrencyMismatch] for the seller.
func DecideCreate(c *Creation, op Create) (*Auction, error) {
	seller, err := c.Book.Account(op.Seller)
	if err != nil {
		return nil, err
	}
	if seller.Currency != op.Currency {
		return nil, ledger.ErrCurrencyMismatch
	}
	if len(op.Rounds) == 0 || op.MinBid < 1 || op.MinIncrement < 1 {
		panic("auction: the edge let an auction through that cannot be held")
	}
	a := Auction{
		ID: c.Book.NewID(), Title: op.Title, Status: StatusPending, Currency: op.Currency, Seller: op.Seller,
		Rounds: make([]Round, len(op.Rounds)), MinBid: op.MinBid, MinIncrement: op.MinIncrement, AntiSnipe: op.AntiSnipe,
		Cooldown: op.Cooldown, UniqueAmounts: op.UniqueAmounts, Version: 1, CreatedAt: c.Book.Now(),
	}
	for i, r := range op.Rounds {
		a.Rounds[i] = Round{Number: i + 1, Winners: r.Winners, Duration: r.Duration, Status: RoundPending}
	}
	c.Auctions = append(c.Auctions, a)
	return a.clone(), nil
}
