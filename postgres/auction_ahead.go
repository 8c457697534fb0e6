package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/auction"
	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/ledger"
)

// closingMargin is how long before a round's end bids are decided under the auction's lock, with the database's own clock:
// far longer than the carried-on clock can be wrong.
const closingMargin = 250 * time.Millisecond

// raiseAuction is updateAuction for what bids change.
const raiseAuction = `WITH written AS (
		UPDATE auctions SET total_bids = $4, seq = $5, version = $6, revision = $7
		WHERE id = $1 AND version = $2 AND revision = $3 AND status || '' = 'active' AND seq <= $5 RETURNING 1
	) SELECT 1 / (count(*) = 1)::integer FROM written`

// bidStatements are those of commitAhead.
func bidStatements() []string {
	return []string{
		joinInOrder, raiseAuction, guardAuction, guardAbsentAccounts, guardSameAccounts, guardAbsentKeys,
		guardedUpdateAccounts, insertHolds, guardedRaiseStanding, guardedRaiseUnique, insertStanding, insertBids, insertKeys,
	}
}

// commitAhead decides on what is remembered and sends the writes as one transaction, which the next call may rest on
// before this one has ended: see [Ledger.commitAhead]. It sends nothing where the auction's row must be locked first: near
// the end of a round, which only the database's own clock may judge, and where a bid has moved the end; nor where a bid
// repeats another, as far as is known.
//
// Everything that a decision can rest on is checked by the statements: the auction with its rounds and standing bids by
// its version and revision; accounts that change by their version and balance; those that were only looked at, or were not
// there, by a look at them; the keys whose answers leave no record by a look at those.
func (s *Auctions) commitAhead(ctx context.Context, id uuid.UUID, t *seat, want auction.Want, decide func(*auction.Unit)) error {
	if want.Settling != nil || s.db.recent.any(want.Keys) || !s.db.accounts.trusted() {
		return errNotSent
	}
	read, err := s.db.readUnknown(ctx, want.Bidders)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	var known *knownAuction // once the transaction is sent
	err = s.db.bids(id).commit(ctx, crashpoint.AuctionBeforeCommit, func(b *pgx.Batch) bool {
		k := s.memory.takeAhead(t)
		if k == nil {
			return false
		}
		if !s.bidAhead(b, k, want, read, decide) {
			s.memory.put(t, k)
			return false
		}
		known = k
		s.memory.sent(t, k)
		return true
	})
	if known != nil {
		s.memory.ended(t, known, err == nil, isGuard(err))
	}
	if isGuard(err) {
		return fmt.Errorf("%w: %w", errStale, err)
	}
	return err
}

// bidAhead decides on what is remembered and queues the writes. It reports false, and has changed nothing, where that
// cannot be.
func (s *Auctions) bidAhead(b *pgx.Batch, known *knownAuction, want auction.Want, read map[string]*ledger.Account, decide func(*auction.Unit)) bool {
	now, ok := s.db.accounts.now()
	if round := known.Auction.Open(); !ok || round == nil || !now.Before(round.EndsAt.Add(-closingMargin)) {
		return false
	}
	book := ledger.NewBook(now.UTC(), newID)
	absent, ok := s.db.accounts.loadAll(want.Bidders, read, book)
	if !ok {
		return false
	}
	was, revision := known.Auction.Version, newID()
	known.Begin(book)
	known.LoadHolds(want.Bidders)
	u := &auction.Unit{State: known.State, Keys: idempotency.NewBatch(nil)}
	u.Keys.Grow(len(want.Keys))
	decide(u)
	if len(known.ChangedRounds()) > 0 {
		known.Undo()
		return false
	}

	a := known.Auction
	b.Queue(joinInOrder)
	if known.Changed() {
		b.Queue(raiseAuction, a.ID, was, known.revision, a.TotalBids, a.Seq, a.Version, revision)
		known.revision = revision
	} else {
		b.Queue(guardAuction, a.ID, was, known.revision)
	}
	guardUnchanged(b, book, absent)
	guardMisses(b, u.Keys.Misses())
	saveBook(b, book.Changes(), guardedWrites)
	saveBids(b, known.State, guardedWrites)
	saveKeys(b, u.Keys.Fresh(), book.Now(), guardedWrites)
	s.db.recent.note(u.Keys.Fresh())
	// What the next call decides on. Should this transaction fail, the checks of those that rest on it do so, too.
	s.db.accounts.keep(book)
	known.settle()
	return true
}
