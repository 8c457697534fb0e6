package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/postgres/turns"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

// closingMargin is how long before a round's end bids are decided under the auction's lock, with the database's own clock:
// far longer than the carried-on clock can be wrong.
const closingMargin = 250 * time.Millisecond

// raiseAuction is updateAuction for what bids change. The database's own clock has the last word on whether they are in
// time: what was decided holds until the instant valid_until.
const raiseAuction = `WITH written AS (
		UPDATE auctions AS a SET total_bids = n.total_bids, seq = n.seq, version = n.version, revision = n.revision, chapter = n.version >> 4
		FROM (SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::uuid[], $8::timestamptz[])
			AS n (id, old_version, old_revision, total_bids, seq, version, revision, valid_until)` + newestAuction + `
		WHERE ` + sameAuction + ` AND a.version = n.old_version AND a.revision = n.old_revision AND a.status || '' = 'active'
			AND a.seq <= n.seq AND clock_timestamp() < n.valid_until RETURNING 1
	) SELECT 1 / (count(*) = $9::bigint)::integer FROM written`

// queueRaise queues raiseAuction for one auction.
func queueRaise(b *pgx.Batch, a *auction.Auction, was int64, old, revision uuid.UUID, until time.Time) {
	b.Queue(raiseAuction, [][16]byte{a.ID}, []int64{was}, [][16]byte{old}, []int64{a.TotalBids}, []int64{a.Seq}, []int64{a.Version},
		[][16]byte{revision}, []time.Time{until}, 1)
}

// commitSpeculative decides on what is remembered and sends the writes as one transaction, which the next call may rest on
// before this one has ended: see [Ledger.commitSpeculative]. It sends nothing where the auction's row must be locked first: near
// the end of a round, which only the database's own clock may judge, and where a bid has moved the end; nor where a bid
// repeats another, as far as is known.
//
// Everything that a decision can rest on is checked by the statements: the auction with its rounds and standing bids by
// its version and revision; the time by the database's clock; accounts that change by their version and balance; those that
// were only looked at, or were not there, by a look at them; the keys whose answers leave no record by a look at those.
func (s *Auctions) commitSpeculative(ctx context.Context, id uuid.UUID, t *speculation.Entry[*speculation.Known], want auction.Want, turn *turns.Turn,
	decide func(*auction.Unit),
) error {
	switch {
	case want.Settling != nil:
		return speculation.NotSent(speculation.Command, nil)
	case len(s.db.blocked.findStanding(id, want.Bidders)) > 0:
		return speculation.NotSent(speculation.Blocked, nil)
	case turn.IsFirst():
		return speculation.NotSent(speculation.Turn, nil)
	}
	var (
		known *speculation.Known // once the transaction is sent
		sent  speculation.Sent
	)
	err := s.db.spec.Commit(ctx, s.db.spec.Pipeline(int(id[len(id)-1])),
		speculation.Want{Place: crashpoint.AuctionBeforeCommit, Target: id.String(), Accounts: want.Bidders, Keys: want.Keys, Doubt: turn != nil},
		func(b *pgx.Batch, on speculation.Scene) error {
			k, err := s.memory.Take(t, turn != nil)
			if err != nil {
				return err
			}
			if err := s.bidSpeculatively(b, k, want, on, decide); err != nil {
				s.memory.PutBack(t, k)
				return err
			}
			known = k
			s.memory.Sent(t, k, &sent)
			return nil
		})
	if known != nil {
		s.memory.Ended(t, known, &sent, err)
	}
	return err
}

// bidSpeculatively decides on what is remembered and queues the writes. After an error it has changed nothing.
func (s *Auctions) bidSpeculatively(b *pgx.Batch, known *speculation.Known, want auction.Want, on speculation.Scene, decide func(*auction.Unit)) error {
	book := on.Book
	round := known.Auction.Open()
	if round == nil || !book.Now().Before(round.EndsAt.Add(-closingMargin)) {
		return speculation.NotSent(speculation.Closing, nil)
	}
	was, revision := known.Auction.Version, newID()
	known.Begin(book)
	known.Uncertain = on.Uncertain
	known.LoadHolds(want.Bidders)
	u := &auction.Unit{State: known.State, Keys: idempotency.NewBatch(nil)}
	u.Keys.Grow(len(want.Keys))
	decide(u)
	if len(known.ChangedRounds()) > 0 {
		known.Undo()
		return speculation.NotSent(speculation.Extension, nil)
	}

	a := known.Auction
	if known.Changed() {
		queueRaise(b, a, was, known.Revision, revision, known.Horizon())
		known.Revision = revision
	} else {
		b.Queue(guardAuction, [][16]byte{a.ID}, []int64{was}, [][16]byte{known.Revision}, 1)
	}
	guardUnchanged(b, book, on.Absent)
	guardMisses(b, u.Keys.Misses())
	saveBook(b, book.Changes(), guardedWrites)
	nonce := speculation.NewNonce()
	saveBids(b, known.State, nonce, guardedWrites, s.db.raising())
	saveKeys(b, u.Keys.Fresh(), book.Now(), guardedWrites)
	s.db.spec.Keys.Note(u.Keys.Fresh())
	known.Settle(nonce)
	return nil
}
