package auction

import (
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

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
		Cooldown: op.Cooldown, UniqueAmounts: op.UniqueAmounts, Version: 1, CreatedAt: storable(c.Book.Now()),
	}
	for i, r := range op.Rounds {
		a.Rounds[i] = Round{Number: i + 1, Winners: r.Winners, Duration: r.Duration, Status: RoundPending}
	}
	c.Auctions = append(c.Auctions, a)
	return a.clone(), nil
}
