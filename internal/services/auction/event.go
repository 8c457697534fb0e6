package auction

import (
	"strings"
	"time"
)

// EventType names a kind of event.
type EventType string

// The kinds of events. All but the countdown carry a sequence number and are committed with their cause.
const (
	EventAuctionStarted   EventType = "auction.started"
	EventAuctionCompleted EventType = "auction.completed"
	EventAuctionCancelled EventType = "auction.cancelled"
	EventBidPlaced        EventType = "bid.placed"
	EventRoundExtended    EventType = "round.extended"
	EventRoundCompleted   EventType = "round.completed"
	EventRoundStarted     EventType = "round.started"
	EventBidCarriedOver   EventType = "bid.carried_over"
	EventCountdown        EventType = "countdown"
)

// Event is a fact about an auction. Data is one of the types below, whose JSON is the contract's.
type Event struct {
	Seq  int64
	Type EventType
	At   time.Time
	Data any
}

// Instant is a time that JSON has as the contract writes it: RFC 3339, UTC, with microseconds.
type Instant time.Time

const instantLayout = `"2006-01-02T15:04:05.000000Z"`

// MarshalJSON implements json.Marshaler.
func (i Instant) MarshalJSON() ([]byte, error) {
	return []byte(time.Time(i).UTC().Format(instantLayout)), nil
}

// RoundsData goes with auction.started, auction.completed and auction.cancelled.
type RoundsData struct {
	Rounds []RoundView `json:"rounds"`
}

// RoundView is a round as the contract shows it.
type RoundView struct {
	Round      int      `json:"round"`
	Winners    int      `json:"winners"`
	Status     string   `json:"status"`
	Duration   string   `json:"duration"`
	StartedAt  *Instant `json:"started_at"`
	EndsAt     *Instant `json:"ends_at"`
	Extensions int      `json:"extensions"`
}

// BidPlacedData goes with bid.placed. Outbid names the account whose standing bid lost a winning place by this bid, at most
// one; it is nil, and absent in JSON, where that was not recorded. Floor is then the least new bid that would win.
type BidPlacedData struct {
	Account        string   `json:"account"`
	Amount         int64    `json:"amount"`
	PreviousAmount int64    `json:"previous_amount"`
	Round          int      `json:"round"`
	Rank           int      `json:"rank"`
	Outbid         []Outbid `json:"outbid,omitzero"`
	Floor          int64    `json:"min_winning_bid,omitzero"`
}

// Outbid is a standing bid that lost its winning place, with its new rank.
type Outbid struct {
	Account string `json:"account"`
	Amount  int64  `json:"amount"`
	Rank    int    `json:"rank"`
}

// RoundExtendedData goes with round.extended.
type RoundExtendedData struct {
	Round      int     `json:"round"`
	EndsAt     Instant `json:"ends_at"`
	Extensions int     `json:"extensions"`
}

// RoundCompletedData goes with round.completed; the winners are in order of rank.
type RoundCompletedData struct {
	Round   int          `json:"round"`
	Winners []WinnerView `json:"winners"`
}

// WinnerView is a winner as the contract shows it in an event.
type WinnerView struct {
	Account string `json:"account"`
	Amount  int64  `json:"amount"`
}

// RoundStartedData goes with round.started; Winners is the number of places.
type RoundStartedData struct {
	Round   int     `json:"round"`
	EndsAt  Instant `json:"ends_at"`
	Winners int     `json:"winners"`
}

// BidCarriedOverData goes with bid.carried_over.
type BidCarriedOverData struct {
	Account   string `json:"account"`
	Amount    int64  `json:"amount"`
	FromRound int    `json:"from_round"`
	ToRound   int    `json:"to_round"`
}

// CountdownData goes with countdown.
type CountdownData struct {
	Round       int     `json:"round"`
	RemainingMS int64   `json:"remaining_ms"`
	EndsAt      Instant `json:"ends_at"`
}

// String is the time without quotes.
func (i Instant) String() string { return strings.Trim(time.Time(i).UTC().Format(instantLayout), `"`) }

func instant(t *time.Time) *Instant {
	if t == nil {
		return nil
	}
	i := Instant(*t)
	return &i
}
