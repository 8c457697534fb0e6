package replay

import (
	"cmp"
	"slices"
	"time"
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
	// Bids are all accepted bids in order. [Stream] leaves them out.
	Bids []PlacedBid
	// Board is the ranking of the standing bids of the open round; of the last round at its close once the auction is
	// completed; at the cancellation, and nobody winning, once it is cancelled.
	Board []Place
	// Accounts has every account that had funds or took part; none where [Rules.FundsUnknown].
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

// Views are the rounds as the server shows them.
func (o *Outcome) Views() []RoundView {
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

// CompareLeaderboard compares the whole leaderboard, as [Compare] does. Of a cancelled auction it does not look at who was
// winning.
func (o *Outcome) CompareLeaderboard(round int, said []Place) error {
	board := slices.Clone(o.Board)
	for i := range board[:min(len(said), len(board))] {
		if o.Status == "cancelled" {
			board[i].Winning = said[i].Winning
		}
	}
	return cmp.Or(Compare("round of the leaderboard", round, o.CurrentRound), Compare("leaderboard", said, board))
}
