package auction

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// Settling returns the accounts whose money ops can move, besides those that the batch itself bids for: for a round's close
// the seller and the winners, for the last close the losers too, for a cancellation all bidders. It may return too many,
// and an account twice.
func Settling(s *State, ops []Op) []string {
	var accounts []string
	for _, op := range ops {
		switch op := op.(type) {
		case Cancel:
			if !s.ended() {
				accounts = s.bidders(accounts, s.Standing.Len())
			}
		case CloseRound:
			// A round that is not open now cannot be over in the batch that opens it, since it lasts some time.
			r := s.Auction.Open()
			if r == nil || r.Number != op.Round {
				continue
			}
			// Bids of the same batch may rank before others, but no other bid can move up.
			places := r.Winners
			if r.Number == len(s.Auction.Rounds) {
				places = s.Standing.Len()
			}
			accounts = s.bidders(append(accounts, s.Auction.Seller), places)
		case Create, Start, PlaceBid:
		}
	}
	return accounts
}

// bidders adds the accounts of the first places.
func (s *State) bidders(accounts []string, places int) []string {
	for rank, bid := range s.Standing.All() {
		if rank > places {
			break
		}
		accounts = append(accounts, bid.Account)
	}
	return accounts
}

// loaded returns an error when the transaction has not loaded an account whose money op can move. A settlement is done as a
// whole or not at all.
func (s *State) loaded(op Op) error {
	for _, account := range Settling(s, []Op{op}) {
		if _, err := s.Book.Account(account); err != nil {
			return err
		}
	}
	return nil
}

func decideClose(s *State, op CloseRound) (any, error) {
	a := s.Auction
	if op.Term < a.LeaderTerm {
		return (*Auction)(nil), ErrSuperseded
	}
	now, r := s.now(), a.Open()
	if r == nil || r.Number != op.Round || now.Before(*r.EndsAt) {
		return (*Auction)(nil), nil
	}
	if err := s.loaded(op); err != nil {
		return (*Auction)(nil), err
	}
	winners := make([]Bid, 0, min(r.Winners, s.Standing.Len()))
	for rank, bid := range s.Standing.All() {
		if rank > r.Winners {
			break
		}
		winners = append(winners, bid)
	}
	// Whether the seller can take all of it is checked before the first payment, since a refusal must change nothing.
	if err := s.canPay(winners); err != nil {
		return (*Auction)(nil), err
	}

	s.change(now)
	a.LeaderTerm = op.Term
	r = s.round(r.Number)
	r.Status, r.EndedAt = RoundCompleted, &now
	s.emit(EventRoundCompleted, now, s.pay(winners, r.Number))
	if r.Number < len(a.Rounds) {
		s.carryOver(r.Number, now)
		return a.clone(), nil
	}
	for _, bid := range s.Standing.All() {
		s.release(bid)
	}
	a.Status, a.EndedAt = StatusCompleted, &now
	s.emit(EventAuctionCompleted, now, RoundsData{Rounds: a.Views()})
	return a.clone(), nil
}

// canPay reports whether the seller can take what the winners pay.
func (s *State) canPay(winners []Bid) error {
	var total int64
	for i := range winners {
		if winners[i].Amount > math.MaxInt64-total {
			return ledger.ErrBalanceOverflow
		}
		total += winners[i].Amount
	}
	return s.Book.CanReceive(s.Auction.Seller, total)
}

// pay lets the winners of a round pay the seller, and takes their bids out of the set.
func (s *State) pay(winners []Bid, round int) RoundCompletedData {
	data := RoundCompletedData{Round: round, Winners: make([]WinnerView, 0, len(winners))}
	memo := fmt.Sprintf("%s round %d", s.topic, round)
	for i, bid := range winners {
		hold, err := s.Book.Capture(bid.Hold, s.Auction.Seller, bid.Amount, memo)
		if err != nil {
			// Everything was checked before; to continue would let an account win without paying.
			panic(fmt.Sprintf("auction: a winner cannot pay: %v", err))
		}
		if hold.Amount != bid.Amount {
			panic("auction: a hold is not what its bid is")
		}
		s.Standing.remove(bid.Account)
		s.Winners = append(s.Winners, Winner{
			Round: round, Rank: i + 1, Account: bid.Account, Amount: bid.Amount, Transfer: *hold.Transfer,
		})
		data.Winners = append(data.Winners, WinnerView{Account: bid.Account, Amount: bid.Amount})
	}
	return data
}

// carryOver takes the losers of a round into the next one, which it opens.
func (s *State) carryOver(from int, now time.Time) {
	for _, bid := range s.Standing.All() {
		s.emit(EventBidCarriedOver, now, BidCarriedOverData{
			Account: bid.Account, Amount: bid.Amount, FromRound: from, ToRound: from + 1,
		})
	}
	s.emit(EventRoundStarted, now, s.open(from+1, now))
}

// fundsOnly lets a want of money through. Any other trouble with a hold of our own is a fault.
func fundsOnly(err error) error {
	if _, ok := errors.AsType[*ledger.InsufficientFundsError](err); !ok {
		panic(fmt.Sprintf("auction: a hold cannot be raised: %v", err))
	}
	return err
}
