package replay

import (
	"maps"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/client"
)

// Place is a place on the leaderboard.
type Place struct {
	Rank    int
	Account string
	Amount  int64
	Winning bool
}

// Win is an item of the list of winners.
type Win struct {
	Round, Rank int
	Account     string
	Amount      int64
}

// Outcome is what an auction's events come to.
type Outcome struct {
	Status       string
	CurrentRound int
	Seq          int64
	Rounds       []Round
	// Bids are all accepted bids in order.
	Bids []PlacedBid
	// Board is the ranking of the standing bids of the open round; of the last round at its close once the auction is
	// completed; at the cancellation, and nobody winning, once it is cancelled.
	Board []Place
	// Accounts has every account that had funds or took part.
	Accounts map[string]Balance
	// Income is what the seller was paid.
	Income int64

	seller string
	minBid int64
}

// Round is a round as the events tell it. Times are zero until they are known.
type Round struct {
	Number, Places, Extensions     int
	Status                         string
	StartedAt, EndsAt, CompletedAt time.Time
	Winners                        []Payment
}

// PlacedBid is an accepted bid; RoundEndsAt is its round's end after an extension that it caused.
type PlacedBid struct {
	Bid
	Seq             int64
	At, RoundEndsAt time.Time
}

// views are the rounds as the server shows them.
func (o *Outcome) views() []RoundView {
	views := make([]RoundView, len(o.Rounds))
	for i, r := range o.Rounds {
		views[i] = RoundView{Round: r.Number, Winners: r.Places, Status: r.Status, Extensions: r.Extensions}
		if !r.EndsAt.IsZero() {
			views[i].EndsAt = &r.EndsAt
		}
	}
	return views
}

// Wins are the winners of all rounds in order.
func (o *Outcome) Wins() []Win {
	var wins []Win
	for _, r := range o.Rounds {
		for i, w := range r.Winners {
			wins = append(wins, Win{Round: r.Number, Rank: i + 1, Account: w.Account, Amount: w.Amount})
		}
	}
	return wins
}

// Held is what is held for all standing bids.
func (o *Outcome) Held() int64 {
	var held int64
	for _, b := range o.Accounts {
		held += b.Held
	}
	return held
}

// Floor is the least new bid that would now win. Only an active auction has one.
func (o *Outcome) Floor() int64 {
	places := o.Rounds[o.CurrentRound-1].Places
	if len(o.Board) < places {
		return o.minBid
	}
	return o.Board[places-1].Amount + 1
}

// CompareAuction compares the auction as the server shows it. It returns a *Difference, as do all comparisons here; the
// server's answer must be of the same moment as the last event.
func (o *Outcome) CompareAuction(said *client.Auction) error {
	d := &differ{}
	same(d, "seq of the auction", said.Seq, o.Seq)
	same(d, "status of the auction", string(said.Status), o.Status)
	same(d, "current round", said.CurrentRound, int64(o.CurrentRound))
	same(d, "total bids", said.TotalBids, int64(len(o.Bids)))
	rounds := make([]RoundView, len(said.Rounds))
	for i, r := range said.Rounds {
		rounds[i] = RoundView{Round: int(r.Round), Winners: int(r.Winners), Extensions: int(r.Extensions), Status: string(r.Status)}
		if !r.EndsAt.IsZero() {
			rounds[i].EndsAt = &r.EndsAt
		}
	}
	deep(d, "rounds", rounds, o.views())
	return d.err()
}

// CompareLeaderboard compares the whole leaderboard. Of a cancelled auction it does not look at who was winning.
func (o *Outcome) CompareLeaderboard(round int, said []Place) error {
	d := &differ{}
	same(d, "round of the leaderboard", round, o.CurrentRound)
	board := slices.Clone(o.Board)
	for i := range board[:min(len(said), len(board))] {
		if o.Status == "cancelled" {
			board[i].Winning = said[i].Winning
		}
	}
	deep(d, "leaderboard", said, board)
	return d.err()
}

// CompareWinners compares the list of winners.
func (o *Outcome) CompareWinners(said []Win) error {
	d := &differ{}
	deep(d, "winners", said, o.Wins())
	return d.err()
}

// CompareBids compares the history of bids.
func (o *Outcome) CompareBids(said []client.PlacedBid) error {
	bids := make([]client.PlacedBid, len(o.Bids))
	for i, b := range o.Bids {
		bids[i] = client.PlacedBid{Account: b.Account, Amount: b.Amount, PreviousAmount: b.PreviousAmount, Round: int64(b.Round), Seq: b.Seq, At: b.At}
	}
	d := &differ{}
	deep(d, "bids", said, bids)
	return d.err()
}

// CompareAccounts compares what the accounts have. Accounts that the auditor knows must all be there, and no others.
func (o *Outcome) CompareAccounts(said map[string]Balance) error {
	d := &differ{}
	known := slices.Sorted(maps.Keys(o.Accounts))
	deep(d, "accounts", slices.Sorted(maps.Keys(said)), known)
	for _, account := range known {
		same(d, "balance of "+account, said[account], o.Accounts[account])
	}
	return d.err()
}
