package auction

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Limits of an auction.
const (
	MaxRounds     = 1000                 // the most rounds of an auction
	MaxWinners    = 10_000               // the most winners of a round: its close pays each of them in one transaction
	MaxDuration   = 366 * 24 * time.Hour // the longest that a round, an extension, a window or a cooldown may be
	MinDuration   = time.Millisecond     // the shortest that a round may be
	MaxExtensions = 1_000_000            // the most often that a round can be extended

	// MaxAhead is by how much the time of a bid may be later than the clock's, where its decision knew the present as an interval only.
	MaxAhead = 250 * time.Millisecond
)

// Status is the state of an auction.
type Status string

// The states of an auction; completed and cancelled are final.
const (
	StatusPending   Status = "pending"
	StatusActive    Status = "active"
	StatusCompleted Status = "completed"
	StatusCancelled Status = "cancelled"
)

// RoundStatus is the state of a round.
type RoundStatus string

// The states of a round. The open round of a cancelled auction becomes completed, without winners; later ones stay pending.
const (
	RoundPending   RoundStatus = "pending"
	RoundActive    RoundStatus = "active"
	RoundCompleted RoundStatus = "completed"
)

// Auction is an auction with its rounds. Amounts are minor units.
type Auction struct {
	ID            uuid.UUID
	Number        int64 // the order of lists; the database's to give
	Title         string
	Status        Status
	Currency      string
	Seller        string
	CurrentRound  int // from 1; 0 before the start
	Rounds        []Round
	MinBid        int64
	MinIncrement  int64
	AntiSnipe     AntiSnipe
	Cooldown      time.Duration
	UniqueAmounts bool
	TotalBids     int64 // accepted ones, raises too
	Seq           int64 // of the last event; 0 before the first
	LeaderTerm    int64 // the newest term under which a round was closed
	Version       int64 // grows with each change
	CreatedAt     time.Time
	StartedAt     *time.Time
	EndedAt       *time.Time
}

// Round is a part of an auction with winners of its own.
type Round struct {
	Number     int // from 1
	Winners    int // places
	Duration   time.Duration
	Status     RoundStatus
	Extensions int
	StartedAt  *time.Time
	EndsAt     *time.Time // set when the round starts; moved by extensions
	EndedAt    *time.Time
}

// AntiSnipe extends a round by Extension, up to MaxExtensions times, when a bid comes within Window of its end. Any zero
// turns it off.
type AntiSnipe struct {
	Window        time.Duration
	Extension     time.Duration
	MaxExtensions int
}

// Open returns the round that takes bids, as far as the states say, or nil. Whether its time is over is for the caller to
// compare.
func (a *Auction) Open() *Round {
	if a.Status != StatusActive || a.CurrentRound < 1 || a.CurrentRound > len(a.Rounds) {
		return nil
	}
	if r := &a.Rounds[a.CurrentRound-1]; r.Status == RoundActive {
		return r
	}
	return nil
}

// Draft reports whether the auction was never started.
func (a *Auction) Draft() bool { return a.StartedAt == nil }

// Topic is the auction's name in the live stream, and the owner of its holds.
func (a *Auction) Topic() string { return Topic(a.ID) }

// TopicPrefix is what [Topic] begins with.
const TopicPrefix = "auction:"

// Topic is the name of an auction in the live stream, and the owner of its holds.
func Topic(id uuid.UUID) string { return TopicPrefix + id.String() }

// Bid is a standing bid: the one of its account.
type Bid struct {
	Account string
	Amount  int64
	Round   int // in which it was placed
	Seq     int64
	At      time.Time
	Hold    uuid.UUID
}

// Raise is a standing bid that took the place of the account's earlier one.
type Raise struct {
	Bid

	Before int64 // the amount of the earlier one
}

// Placed is an accepted bid: the answer to its bidder, its entry in the history, and the event bid.placed.
type Placed struct {
	Auction        uuid.UUID
	Account        string
	Amount         int64
	PreviousAmount int64 // 0 at first
	Round          int
	RoundEndsAt    time.Time // after an extension that this bid caused; not in the history
	Rank           int       // right after this bid
	Seq            int64     // of its bid.placed
	At             time.Time
	Hold           uuid.UUID // that sets its money aside
	// Outbid is the number of the standing bid that lost its winning place by this one, and Floor the least new bid that would
	// win then. Both are 0 where nobody lost a place, and in the history as it is listed.
	Outbid, Floor int64
}

// Winner is a bid that won a round.
type Winner struct {
	Round    int
	Rank     int
	Account  string
	Amount   int64
	Transfer uuid.UUID // by which the seller was paid
}

// Ranked is a place on the leaderboard.
type Ranked struct {
	Rank    int
	Account string
	Amount  int64
	Winning bool
}

// AccountBid is an account's standing bid in the open round of an auction.
type AccountBid struct {
	Number      int64 // of the auction
	Auction     uuid.UUID
	Round       int // the open one
	Amount      int64
	Rank        int
	Winning     bool
	RoundEndsAt time.Time
}

// Refusals. Each is a decision: nothing changed.
var (
	// ErrBadTransition is returned when an auction that was started is started, or one that has ended is cancelled.
	ErrBadTransition = errors.New("the auction's state does not allow this")
	// ErrNotActive is returned when a bid comes while no round is open: before the start, at or past a round's end, after
	// the last round, or after the cancellation.
	ErrNotActive = errors.New("no round of the auction is open")
	// ErrOwnAuction is returned when the seller bids.
	ErrOwnAuction = errors.New("the seller cannot bid in its own auction")
	// ErrAmountTaken is returned where amounts are unique and another active bid of the auction has this one.
	ErrAmountTaken = errors.New("another active bid of the auction has this amount")
	// ErrSuperseded is returned to a leader whose term is over: a newer one has closed a round of the auction.
	ErrSuperseded = errors.New("a newer leader is at work")
)

// NotFoundError is returned when an auction that does not exist is named.
type NotFoundError struct{ ID uuid.UUID }

func (e *NotFoundError) Error() string { return fmt.Sprintf("there is no auction %s", e.ID) }

// BidTooLowError is returned when a bid is under the least that its bidder may bid now.
type BidTooLowError struct{ Least int64 }

func (e *BidTooLowError) Error() string { return fmt.Sprintf("the least bid now is %d", e.Least) }

// CooldownError is returned when an account bids again before its cooldown is over.
type CooldownError struct{ RetryAfter time.Duration }

func (e *CooldownError) Error() string { return fmt.Sprintf("bid again in %s", e.RetryAfter) }
