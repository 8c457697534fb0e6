package auction

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
)

// Unit is what one transaction works on. Exactly one of State and Creation is set.
type Unit struct {
	State    *State
	Creation *Creation
	Keys     *idempotency.Batch
	// Blocked is why the auction can't be worked on now. Every command that its key does not answer is refused with it.
	Blocked error
	Audit   []command.Audit
}

// Want says what a transaction on an auction needs beside the auction itself.
type Want struct {
	Keys    []idempotency.ID
	Bidders []string // the accounts that the batch's bids are made for, in any order, repeats allowed
	// Settling is set when the batch may start, close or cancel: the transaction then reads its time from the database
	// under the auction's lock, and loads the accounts that Settling names, those whose money may move.
	Settling func(*State) []string
}

// Store is what the service needs of a database. Both methods run one transaction, call decide with what it locked and
// loaded, write what decide changed, and commit; decide is called again with a new unit whenever the transaction has to
// be run again. Errors: command.ErrUnavailable, command.ErrUnknownOutcome, or what the database refused.
type Store interface {
	Reader
	// Create makes auctions; the accounts are the sellers'.
	Create(ctx context.Context, accounts []string, keys []idempotency.ID, decide func(*Unit)) error
	// Await returns when it is time to take the next batch of commands on an auction: other processes may take turns with this one. It protects
	// nothing, and waits for a fraction of a second at most. It reports whether it has waited, for a turn that begins now.
	Await(ctx context.Context, auction uuid.UUID) (begun bool)
	// Commit works on one auction. It returns [NotFoundError] when there is no such auction. It may be called for an auction
	// while an earlier call for it has not returned; decide is called in the order of the commits.
	Commit(ctx context.Context, auction uuid.UUID, want Want, decide func(*Unit)) error
}

// Floor is what a new bid must have to win now.
type Floor struct {
	Least int64 // the auction's minimum while places are free, else the lowest winning amount plus one
	Free  int64 // the least amount from there on that no active bid has, where amounts are unique; else the same
}

// Reader answers questions about auctions, each from one snapshot.
type Reader interface {
	// Auction returns one auction, or [NotFoundError].
	Auction(ctx context.Context, id uuid.UUID) (*Auction, error)
	// Auctions returns up to limit auctions with a number above after, in order, without their rounds; drafts only when
	// asked for.
	Auctions(ctx context.Context, after int64, limit int, drafts bool) ([]Auction, error)
	// Leaderboard returns up to limit places below rank after, in order, and the round they are of: the open one, or the
	// last one once the auction has ended.
	Leaderboard(ctx context.Context, id uuid.UUID, after, limit int) (places []Ranked, round int, err error)
	// Winners returns up to limit winners after the given place, in order of round and rank.
	Winners(ctx context.Context, id uuid.UUID, afterRound, afterRank, limit int) ([]Winner, error)
	// Bids returns up to limit accepted bids with a sequence number above after, in order.
	Bids(ctx context.Context, id uuid.UUID, after int64, limit int) ([]Placed, error)
	// AccountBids returns up to limit standing bids of an account in active auctions with a number above after, in order of that
	// number, with their ranks. It takes the longer the more bidders those auctions have.
	AccountBids(ctx context.Context, account string, after int64, limit int) ([]AccountBid, error)
	// Floor returns what a new bid must have to win now. It returns [ErrNotActive] when the auction has ended.
	Floor(ctx context.Context, id uuid.UUID) (Floor, error)
	// Running returns the open rounds of all auctions in order of their ends, with the database's clock.
	Running(ctx context.Context) ([]Running, time.Time, error)
}

// Running is an open round.
type Running struct {
	Auction uuid.UUID
	Round   int
	EndsAt  time.Time
}
