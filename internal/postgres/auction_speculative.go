package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// closingMargin is how long before a round's end bids are decided under the auction's lock, with the database's own clock:
// far longer than the carried-on clock can be wrong.
const closingMargin = 250 * time.Millisecond

// raiseAuction is updateAuction for what bids change. The database's own clock has the last word on whether they are in
// time: what was decided holds until the instant $8.
const raiseAuction = `WITH written AS (
		UPDATE auctions SET total_bids = $4, seq = $5, version = $6, revision = $7
		WHERE id = $1 AND version = $2 AND revision = $3 AND status || '' = 'active' AND seq <= $5 AND clock_timestamp() < $8 RETURNING 1
	) SELECT 1 / (count(*) = 1)::integer FROM written`

// commitAhead decides on what is remembered and sends the writes as one transaction, which the next call may rest on
// before this one has ended: see [Ledger.commitAhead]. It sends nothing where the auction's row must be locked first: near
// the end of a round, which only the database's own clock may judge, and where a bid has moved the end; nor where a bid
// repeats another, as far as is known.
//
// Everything that a decision can rest on is checked by the statements: the auction with its rounds and standing bids by
// its version and revision; the time by the database's clock; accounts that change by their version and balance; those that
// were only looked at, or were not there, by a look at them; the keys whose answers leave no record by a look at those.
func (s *Auctions) commitAhead(ctx context.Context, id uuid.UUID, t *seat, want auction.Want, decide func(*auction.Unit)) error {
	if want.Settling != nil {
		return notSent(fallbackCommand, nil)
	}
	var known *knownAuction // once the transaction is sent
	err := s.db.speculate(ctx, s.db.bids(id), crashpoint.AuctionBeforeCommit, want.Bidders, want.Keys,
		func(b *pgx.Batch, book *ledger.Book, uncertain time.Duration, absent []string) error {
			k, err := s.memory.takeAhead(t)
			if err != nil {
				return err
			}
			if err := s.bidAhead(b, k, want, book, uncertain, absent, decide); err != nil {
				s.memory.put(t, k)
				return err
			}
			known = k
			s.memory.sent(t, k)
			return nil
		})
	if known != nil {
		s.memory.ended(t, known, err == nil, err != nil && fallbackReason(err) == fallbackStale)
	}
	return err
}

// bidAhead decides on what is remembered and queues the writes. After an error it has changed nothing.
func (s *Auctions) bidAhead(b *pgx.Batch, known *knownAuction, want auction.Want, book *ledger.Book, uncertain time.Duration,
	absent []string, decide func(*auction.Unit),
) error {
	round := known.Auction.Open()
	if round == nil || !book.Now().Before(round.EndsAt.Add(-closingMargin)) {
		return notSent(fallbackClosing, nil)
	}
	was, revision := known.Auction.Version, newID()
	known.Begin(book)
	known.Uncertain = uncertain
	known.LoadHolds(want.Bidders)
	u := &auction.Unit{State: known.State, Keys: idempotency.NewBatch(nil)}
	u.Keys.Grow(len(want.Keys))
	decide(u)
	if len(known.ChangedRounds()) > 0 {
		known.Undo()
		return notSent(fallbackExtension, nil)
	}

	a := known.Auction
	if known.Changed() {
		b.Queue(raiseAuction, a.ID, was, known.revision, a.TotalBids, a.Seq, a.Version, revision, known.Horizon())
		known.revision = revision
	} else {
		b.Queue(guardAuction, a.ID, was, known.revision)
	}
	guardUnchanged(b, book, absent)
	guardMisses(b, u.Keys.Misses())
	saveBook(b, book.Changes(), guardedWrites)
	nonce := newNonce()
	saveBids(b, known.State, nonce, guardedWrites)
	saveKeys(b, u.Keys.Fresh(), book.Now(), guardedWrites)
	s.db.recent.note(u.Keys.Fresh())
	known.settle(nonce)
	return nil
}
