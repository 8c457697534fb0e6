package server

import (
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

// duration is a time span as the contract spells it: a Go string.
type duration time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

type roundView struct {
	Round      int                 `json:"round" from:"Number" doc:"from 1"`
	Winners    int                 `json:"winners" doc:"places"`
	Duration   duration            `json:"duration" doc:"without extensions"`
	Status     auction.RoundStatus `json:"status" enum:"pending,active,completed"`
	StartedAt  *timestamp          `json:"started_at"`
	EndsAt     *timestamp          `json:"ends_at" doc:"moved by extensions"`
	Extensions int                 `json:"extensions"`
}

type antiSnipeView struct {
	Window        duration `json:"window"`
	Extension     duration `json:"extension"`
	MaxExtensions int      `json:"max_extensions"`
}

type auctionView struct {
	ID            uuid.UUID      `json:"id"`
	Title         string         `json:"title"`
	Status        auction.Status `json:"status" enum:"pending,active,completed,cancelled"`
	Currency      string         `json:"currency"`
	Seller        string         `json:"seller"`
	CurrentRound  int            `json:"current_round" doc:"0 before the start"`
	Rounds        []roundView    `json:"rounds"`
	MinBid        int64          `json:"min_bid" doc:"minor units"`
	MinIncrement  int64          `json:"min_increment" doc:"minor units"`
	AntiSnipe     antiSnipeView  `json:"anti_snipe" doc:"any zero: rounds are not extended"`
	Cooldown      duration       `json:"cooldown"`
	UniqueAmounts bool           `json:"unique_amounts"`
	TotalBids     int64          `json:"total_bids" doc:"accepted bids, raises too"`
	Seq           int64          `json:"seq" doc:"of the last event"`
	CreatedAt     timestamp      `json:"created_at"`
	StartedAt     *timestamp     `json:"started_at"`
	EndedAt       *timestamp     `json:"ended_at"`
}

// auctionSummaryView is an auction in a list.
type auctionSummaryView struct {
	ID           uuid.UUID      `json:"id"`
	Title        string         `json:"title"`
	Status       auction.Status `json:"status" enum:"pending,active,completed,cancelled"`
	Currency     string         `json:"currency"`
	Seller       string         `json:"seller"`
	CurrentRound int            `json:"current_round" doc:"0 before the start"`
	TotalBids    int64          `json:"total_bids"`
	CreatedAt    timestamp      `json:"created_at"`
}

type bidView struct {
	Auction        uuid.UUID `json:"auction"`
	Account        string    `json:"account"`
	Amount         int64     `json:"amount"`
	PreviousAmount int64     `json:"previous_amount" doc:"of the account's bid before, 0 at first"`
	Round          int       `json:"round"`
	RoundEndsAt    timestamp `json:"round_ends_at" doc:"after an extension that this bid caused"`
	Rank           int       `json:"rank" doc:"right after this bid"`
	Seq            int64     `json:"seq" doc:"of its event bid.placed"`
}

func viewBid(p auction.Placed) bidView {
	return bidView{
		Auction: p.Auction, Account: p.Account, Amount: p.Amount, PreviousAmount: p.PreviousAmount, Round: p.Round,
		RoundEndsAt: timestamp(p.RoundEndsAt), Rank: p.Rank, Seq: p.Seq,
	}
}

// placedBidView is a bid in the history.
type placedBidView struct {
	Account        string    `json:"account"`
	Amount         int64     `json:"amount"`
	PreviousAmount int64     `json:"previous_amount"`
	Round          int       `json:"round"`
	Seq            int64     `json:"seq"`
	At             timestamp `json:"at"`
}

type auctionWinnerView struct {
	Round   int    `json:"round"`
	Rank    int    `json:"rank"`
	Account string `json:"account"`
	Amount  int64  `json:"amount"`
}

type rankView struct {
	Rank    int    `json:"rank" doc:"from 1"`
	Account string `json:"account"`
	Amount  int64  `json:"amount"`
	Winning bool   `json:"winning" doc:"whether the bid would win if the round ended now, or has won"`
}

type leaderboardView struct {
	Items []rankView `json:"items"`
	Round int        `json:"round" doc:"0 before the start"`
	Next  *string    `json:"next" doc:"cursor of the next page, null on the last"`
}

type minWinningBidView struct {
	Amount int64 `json:"amount" doc:"minor units"`
}
